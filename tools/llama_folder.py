"""A Llama's weights as transformers has them. Needs numpy and safetensors."""

import json

from safetensors.numpy import save_file


def halves(weight, heads):
    """Rotary encoding turns neighbours (0, 1), (2, 3), ... of a head's rows in some programs; in
    transformers (and here) row i with row i + half: from the former's order to the latter's."""
    rows, inputs = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, inputs).swapaxes(1, 2).reshape(rows, inputs)


def write_folder(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
