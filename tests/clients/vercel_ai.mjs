// The Vercel AI SDK against the running server: text, streams, tools and objects. Node's test runner reports the results.
import assert from "node:assert";
import test from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const QUESTION = "What colour is the sky?";
const SAID = "The sky is blue.";
const provider = createOpenAICompatible({
    name: "pyggml",
    baseURL: `${process.env.PYGGML_URL}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
});
const asked = (model, prompt) => ({ model: provider(model), prompt, temperature: 0, maxOutputTokens: 64, maxRetries: 0 });

test("text", async () => {
    const { text, finishReason, usage } = await generateText(asked("demo", QUESTION));
    assert.deepStrictEqual([text, finishReason], [SAID, "stop"]);
    assert.ok(usage.outputTokens > 0);
    const told = await generateText({ ...asked("demo", QUESTION), system: "Answer in one word." });
    assert.strictEqual(told.text, "Blue.");
});

test("streams", async () => {
    const result = streamText(asked("demo", QUESTION));
    let text = "";
    for await (const piece of result.textStream) text += piece;
    assert.strictEqual(text, SAID);
    assert.ok((await result.usage).outputTokens > 0);
});

test("tools", async () => {
    const calls = [];
    const weather = tool({
        description: "Tells the weather in a city.",
        inputSchema: z.object({ city: z.enum(["Rome", "Oslo"]) }),
        execute: async ({ city }) => {
            calls.push(city);
            return "It rains.";
        },
    });
    await generateText({
        ...asked("smollm2", "What is the weather in Oslo?"),
        tools: { weather },
        toolChoice: "required",
        stopWhen: stepCountIs(2),
    });
    assert.ok(calls.length > 0);
    assert.ok(["Rome", "Oslo"].includes(calls[0]));
});

test("objects", async () => {
    const schema = z.object({ kind: z.enum(["cat", "dog"]), tame: z.boolean() });
    const { output } = await generateText({ ...asked("smollm2", "A pet as JSON"), output: Output.object({ schema }) });
    assert.ok(schema.safeParse(output).success);
});

test("embeddings", async () => {
    const model = provider.textEmbeddingModel("demo");
    const { embeddings } = await embedMany({ model, values: ["a dog", "a cat"], maxRetries: 0 });
    assert.strictEqual(embeddings.length, 2);
    assert.ok(embeddings[0].length > 0);
});
