"""Write pyggml/importer/config_keys.json: transformers' handling of every key of `config.json`.

For every model type that the layouts in `pyggml/families` support, it collects the keys that the configuration class
has, and those that the class itself, the model's code, or code that both share (rotations, masks, caches) reads. Run it
after a change to the model types of a layout. There are two interpreters, because transformers needs PyTorch and pyggml
does not: this one has pyggml, and ``--python`` names one with transformers::

    python tools/make_config_keys.py --python /path/to/python

Nothing is computed: the sources are read, from the model's class along every name they mention. So a key that is only
read in a branch counts as well.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

KEYS = Path(__file__).resolve().parent.parent / "pyggml" / "importer" / "config_keys.json"

#: Keys that are read, but that the logits of a text do not depend on.
WITHOUT_EFFECT = {
    # only in training
    *("attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "dropout", "initializer_range"),
    *("attention_probs_dropout_prob", "hidden_dropout_prob", "embedding_dropout", "mlp_dropout", "layerdrop"),
    *("classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout", "qa_dropout", "problem_type"),
    "altup_coef_clip",
    *("router_aux_loss_coef", "output_router_logits", "router_jitter_noise", "input_jitter_noise"),
    # how something is computed or returned, not what
    *(
        "use_cache",
        "chunk_size_feed_forward",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "dtype",
        "torch_dtype",
    ),
    *("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"),
    # read with the vocabulary
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    # read with the weights
    *("quantization_config", "compression_config"),
    # what the file is
    *("model_type", "auto_map", "_name_or_path"),
}

#: The shared code that decides nothing about logits: it saves, generates, trains or distributes.
NOT_FOLLOWED = (
    "configuration_utils",
    "distributed",
    "generation",
    "integrations.executorch",
    "integrations.hub_kernels",
    "integrations.peft",
    "integrations.tensor_parallel",
    "loss",
    "modeling_outputs",
    "modeling_utils",
    "models.auto",
    "processing_utils",
    "utils",
)

#: Keys of a dictionary of rotations that stand for a kind of layer.
LAYERS = ("full_attention", "sliding_attention")


# --- with transformers --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Reads:
    """Keys that code reads -> the value that a missing one means, as far as the code says it.

    Attributes:
        keys: keys of the configuration.
        rope: keys of its description of the rotations.
    """

    keys: dict[str, Any] = dataclasses.field(default_factory=dict)
    rope: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, tree: ast.AST, *, within_config: bool) -> None:
        """Add what a piece of code reads."""
        _add(self.keys, _reads(tree, within_config))
        _add(self.rope, _rope_reads(tree))


def _add(known: dict[str, Any], reads: Iterable[tuple[str, Any]]) -> None:
    """Add keys; of several defaults, the first that the code says stays."""
    for key, default in reads:
        if known.get(key) is None:
            known[key] = default


def _reads(tree: ast.AST, within_config: bool) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_config(node.value, within_config):
            yield node.attr, None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            if _is_config(node.args[0], within_config) and isinstance(node.args[1], ast.Constant):
                yield str(node.args[1].value), _constant(node.args[2:])
        elif within_config:
            yield from _entries(node, lambda holder: isinstance(holder, ast.Name) and holder.id == "kwargs")


def _rope_reads(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        yield from ((key, default) for key, default in _entries(node, _is_rope) if key not in LAYERS)


def _entries(node: ast.AST, is_holder: Any) -> Iterator[tuple[str, Any]]:
    """The constant key that an expression reads from a dictionary, if it is one that counts."""
    if isinstance(node, ast.Subscript) and is_holder(node.value) and isinstance(node.slice, ast.Constant):
        if isinstance(node.ctx, ast.Load):
            yield str(node.slice.value), None
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_holder(node.func.value):
        if node.func.attr in ("get", "pop", "setdefault") and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value), _constant(node.args[1:])
    elif isinstance(node, ast.Compare) and is_holder(node.comparators[0]) and isinstance(node.left, ast.Constant):
        yield str(node.left.value), None


def _constant(values: list[ast.expr]) -> Any:
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


def _is_config(node: ast.expr, within_config: bool) -> bool:
    """Return True if an expression is the configuration of the language model, not of images or sounds."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "get_text_config"
    names = ("config", "effective_config", *(("self",) if within_config else ()))
    return (isinstance(node, ast.Name) and node.id in names) or (
        isinstance(node, ast.Attribute) and node.attr == "config"
    )


def _is_rope(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):  # by the kind of layer
        is_layer = not isinstance(node.slice, ast.Constant) or node.slice.value in LAYERS
        return is_layer and _is_rope(node.value)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.startswith(("rope_parameters", "rope_scaling"))


class _WithoutAnnotations(ast.NodeTransformer):
    """Leaves what runs when texts are computed: no types, no weights being initialised, no tables of classes."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name == "_init_weights":
            return None
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        target = node.targets[0]
        return None if isinstance(target, ast.Name) and target.id == "_can_record_outputs" else self.generic_visit(node)


def _tree(thing: Any) -> ast.AST:
    tree: ast.AST = _WithoutAnnotations().visit(ast.parse(textwrap.dedent(inspect.getsource(thing))))
    return tree


def _model_reads(model_class: type) -> Reads:
    """Return the keys that a model's code reads, starting from its class."""
    reads, seen = Reads(), set[Any]()
    waiting: list[Any] = [model_class]
    while waiting:
        thing = inspect.unwrap(waiting.pop())
        if not _is_followed(thing) or thing in seen:
            continue
        seen.add(thing)
        tree = _tree(thing)
        is_shared = thing.__module__ == "transformers.modeling_rope_utils"  # has keys by the kind of rotation
        part = Reads()
        part.add(tree, within_config=False)
        _add(reads.keys, part.keys.items())
        _add(reads.rope, () if is_shared else part.rope.items())
        waiting += thing.__mro__[1:] if inspect.isclass(thing) else []
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        for value in (vars(sys.modules[thing.__module__]).get(name) for name in names):
            waiting += value.values() if type(value) is dict else [value]
    return reads


def _is_followed(thing: Any) -> bool:
    from transformers import PreTrainedConfig

    module = str(getattr(thing, "__module__", ""))
    if not module.startswith("transformers.") or not isinstance(thing, (type, types.FunctionType)):
        return False
    inner = module.removeprefix("transformers.")
    return not any(inner == each or inner.startswith(f"{each}.") for each in NOT_FOLLOWED) and not (
        isinstance(thing, type) and issubclass(thing, PreTrainedConfig)
    )


def _config_reads(config_class: type) -> Reads:
    """Return a configuration class's aliases of keys, and keys that others are derived from."""
    from transformers import PreTrainedConfig
    from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin

    reads = Reads({"per_layer_config": None})  # which the base class reads
    own = config_class.__mro__[: config_class.__mro__.index(PreTrainedConfig)]
    for each in (*own, RotaryEmbeddingConfigMixin):
        for name, value in vars(each).items():
            code = value.fget if isinstance(value, property) else value
            is_written = inspect.isfunction(code) and inspect.getsourcefile(code) == inspect.getsourcefile(each)
            if is_written and "validate" not in name and name not in ("to_dict", "__init__"):
                reads.add(_tree(code), within_config=True)
    return reads


def entry_of(model_type: str, *, is_encoder: bool = False) -> dict[str, Any] | None:
    """Return transformers' handling of the keys of a model type; None for an unknown type."""
    from transformers import PreTrainedConfig
    from transformers.models.auto import configuration_auto

    if model_type not in configuration_auto.CONFIG_MAPPING:
        return None
    config_class = configuration_auto.CONFIG_MAPPING[model_type]
    section = (config_class.sub_configs_defaults or {}).get("text_config")
    reads = Reads() if section else _all_reads(config_class, is_encoder)
    fields = {each.name: _plain_default(each) for each in dataclasses.fields(config_class)}
    names = {"tie_word_embeddings": None, **reads.keys}  # which the base class of all models reads
    aliases = config_class.attribute_map
    computes = {
        aliases.get(name, name): fields.get(name, default)
        for name, default in names.items()
        if name not in WITHOUT_EFFECT and not name.startswith("_") and (name in fields or _is_key(config_class, name))
    }
    thetas = config_class.default_theta
    thetas = thetas if isinstance(thetas, dict) else {"global": thetas}
    for name, kind in (("rope_theta", "global"), ("rope_local_base_freq", "local")):
        if name in computes and computes[name] is None:
            computes[name] = thetas.get(kind)
    entry = {
        "aliases": dict(sorted(aliases.items())),
        "computes": dict(sorted(computes.items())),
        "defines": sorted({aliases.get(name, name) for name in fields} - set(computes) - common_keys()),
    }
    if section is None:
        return {**entry, "rope": dict(sorted(reads.rope.items()))}
    is_fixed = issubclass(section.config_class, PreTrainedConfig)  # or the section's own model_type decides
    return {**entry, "text": section.model_type, "is_text_fixed": is_fixed}


def _all_reads(config_class: type, is_encoder: bool) -> Reads:
    reads = _config_reads(config_class)
    for model_class in _model_classes(config_class, is_encoder):
        model = _model_reads(model_class)
        _add(reads.keys, model.keys.items())
        _add(reads.rope, model.rope.items())
    return reads


def _model_classes(config_class: type, is_encoder: bool) -> list[type]:
    """Return the classes whose code counts: a language model's, or an encoder's alone and with a classifier's head."""
    from transformers.models.auto import modeling_auto as auto

    if is_encoder:
        kinds = (auto.MODEL_MAPPING, auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING)
        return [kind[config_class] for kind in kinds if config_class in kind]
    kinds = (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    return [next(kind[config_class] for kind in kinds if config_class in kind)]


def _plain_default(field: dataclasses.Field[Any]) -> Any:
    value = field.default_factory() if callable(field.default_factory) else field.default
    return value if isinstance(value, (int, float, str, list, dict)) else None


def _is_key(config_class: type, name: str) -> bool:
    """Return True if a name is a key of files, not a method, derived value or setting of the class."""
    value = inspect.getattr_static(config_class, name, None)
    return value is None or getattr(value, "fset", None) is not None


def common_keys() -> set[str]:
    """The keys without effect that every configuration may have."""
    from transformers import GenerationConfig, PreTrainedConfig

    base = Reads()
    base.add(_tree(PreTrainedConfig.__post_init__), within_config=True)
    own = {"per_layer_config", "rope_parameters", "rope_scaling", "rope_theta"}
    taken = {key for key in base.keys if not hasattr(PreTrainedConfig, key)}
    fields = {each.name for each in dataclasses.fields(PreTrainedConfig)}
    generation = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    return fields | generation | WITHOUT_EFFECT | (taken - own)


def rope_kinds() -> dict[str, dict[str, Any]]:
    """Return the keys that transformers reads of rope parameters, by rope type."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kinds: dict[str, dict[str, Any]] = {}
    for kind, function in sorted(ROPE_INIT_FUNCTIONS.items()):
        reads = Reads()
        reads.add(_tree(function), within_config=False)
        kinds[kind] = dict(sorted(reads.rope.items()))
    return kinds


def make(model_types: list[str], encoders: list[str]) -> Mapping[str, Any]:
    """Return the file's content; needs transformers."""
    entries = {name: entry_of(name, is_encoder=name in encoders) for name in model_types}
    texts = [entry["text"] for entry in entries.values() if entry and "text" in entry]
    entries |= {name: entry_of(name) for name in texts}
    return {
        "common": sorted(common_keys()),
        "rope": rope_kinds(),
        "model_types": entries,  # null: it is not in transformers, and its checkpoints brought code of their own
    }


# --- with pyggml --------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", help="an interpreter with transformers and PyTorch")
    parser.add_argument("--make", nargs="+", help="only print the keys of these model types, with this interpreter")
    parser.add_argument("--encoders", nargs="*", default=[], help="those of them that embed texts")
    args = parser.parse_args()
    if args.make:
        print(json.dumps(make(args.make, args.encoders)))
        return
    from pyggml.families import LAYOUTS

    model_types = sorted({name for layout in LAYOUTS for name in layout.model_types})
    encoders = sorted({name for layout in LAYOUTS if layout.is_encoder for name in layout.model_types})
    command = [args.python or sys.executable, __file__, "--make", *model_types, "--encoders", *encoders]
    keys = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    KEYS.write_text(json.dumps(keys, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{KEYS.name}: {len(keys['model_types'])} model types")


if __name__ == "__main__":
    main()
