"""The documented logits processor, in transformers' own sampling loop."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig

import pytest
from support.checkpoints import models
from support.paths import ROOT

PAGE = ROOT / "docs" / "how-to" / "generate-structured-output.md"

# Random weights, so that only the grammar makes JSON of the output. Rows end at different lengths.
PROGRAM = """
import json
from transformers import LlamaConfig, LlamaForCausalLM

model = pyggml.Model(sys.argv[1], vocab_only=True)
vocab = model.vocab
config = LlamaConfig(vocab_size=vocab.n_tokens + 64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=2)
torch.manual_seed(1)
network = LlamaForCausalLM(config).eval()
schema = {"properties": {"name": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "maxItems": 2, "items":
          {"enum": ["a", "b"]}}}, "required": ["name", "tags"], "additionalProperties": False}
grammar = pyggml.Grammar.compile(schema, vocab)
prompt = torch.tensor([vocab.tokenize("A cat")] * 6)
ends = list(vocab.eog_ids)
out = network.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=0, max_new_tokens=300,
                       logits_processor=[GrammarProcessor(grammar, 6)], eos_token_id=ends, pad_token_id=ends[0])
texts = []
for row in out[:, prompt.shape[1]:].tolist():
    end = next(i for i, token_id in enumerate(row) if token_id in ends)
    texts.append(json.loads(vocab.detokenize(row[:end])))
print(json.dumps(texts))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "TRANSFORMERS_PYTHON" not in os.environ,
    reason="needs transformers and torch: set TRANSFORMERS_PYTHON to an interpreter of this version that has both",
)
def test_the_documented_processor_follows_its_schema() -> None:
    processor = re.search(r"```py\n(import numpy as np\nimport torch\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert processor
    paths = [str(ROOT), sysconfig.get_path("purelib")]
    program = f"import sys\nsys.path += {paths!r}\nimport pyggml\n{processor[1]}\n{PROGRAM}"
    vocabulary = models.VOCABULARIES / "ggml-vocab-llama-bpe.gguf"
    done = subprocess.run(
        [os.environ["TRANSFORMERS_PYTHON"], "-c", program, str(vocabulary)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    texts = json.loads(done.stdout.splitlines()[-1])
    assert len({text["name"] for text in texts}) > 1
    for text in texts:
        assert set(text) == {"name", "tags"}
        assert len(text["name"]) <= 12
        assert set(text["tags"]) <= {"a", "b"}
        assert len(text["tags"]) <= 2
