"""Pack a model that others trained: `python -m tools.convert llama2c MODEL.bin --tokenizer TOK.bin -o NAME.scribe`, or
`python -m tools.convert hf FOLDER -o NAME.scribe`.

Everything is int8. What is accepted and what is refused is in docs/convert.md; nothing is left out in silence.
"""

import argparse
import pathlib
import shutil
import sys

from tools import checkpoint, originals, pack
from tools.errors import Parser, UserError, command
from tools.files import make_folder, write_beside

#: Files of an original's folder beside its tensors: the tokenizer in the form in which it came.
TOKENIZERS = {".json": "tokenizer.json"}


def convert(path, name, tokenizer=None, slide=False, calibration=None, count=2048, headroom=pack.HEADROOM):
    """(Packed, calibration texts, Config, float64 weights) of a llama2.c file or a Hugging Face folder.

    As everywhere here, the weights are rounded to float16 first, so that packing the float16 original again gives the
    same file. Raises UserError.
    """
    config, weights = originals.load_model(path, slide)
    weights = checkpoint.rounded(weights)
    section = originals.load_tokenizer(path, config.vocab_size, tokenizer)
    if section is None:
        raise UserError(f"{path}: no tokenizer; name one with --tokenizer")
    packed, texts = pack.pack_weights(config, weights, section, name, calibration, count, headroom)
    return packed, texts, config, weights


def write_original(folder, config, weights, tokenizer):
    """The float16 original that rehearsals compare with: config.json, model.safetensors and the tokenizer's file."""
    folder = make_folder(folder)
    checkpoint.save_float16(folder, weights)
    write_beside(folder / "config.json", config.with_tolerances().save)
    target = folder / TOKENIZERS.get(tokenizer.suffix, "tokenizer.bin")
    if target.resolve() != tokenizer.resolve():
        write_beside(target, lambda path: shutil.copyfile(tokenizer, path))


def parser():
    p = Parser(prog="python -m tools.convert", description=__doc__.splitlines()[0],
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = p.add_subparsers(dest="kind", required=True, metavar="llama2c|hf")
    llama2c = kinds.add_parser("llama2c", help="a llama2.c checkpoint, version 0, 1 or 2")
    llama2c.add_argument("model", type=pathlib.Path, help="MODEL.bin")
    llama2c.add_argument("--tokenizer", type=pathlib.Path, required=True, help="its tokenizer.bin")
    hf = kinds.add_parser("hf", help="a Hugging Face folder: LlamaForCausalLM or RecurrentGemmaForCausalLM")
    hf.add_argument("model", type=pathlib.Path, help="folder with config.json, safetensors and tokenizer.json")
    hf.add_argument("--tokenizer", type=pathlib.Path, help="a llama2.c tokenizer.bin, or another tokenizer.json "
                    "(default: the folder's)")
    for one in (llama2c, hf):
        one.add_argument("-o", "--output", type=pathlib.Path, required=True, help="file to write, NAME.scribe")
        one.add_argument("--slide", action="store_true", help="go on past the trained length with a sliding window "
                         "(default: the story stops there)")
        one.add_argument("--calibrate", type=pathlib.Path, help="text that sets the binary points (default: the "
                         "model's own writing)")
        one.add_argument("--tokens", type=int, default=2048, help="tokens of calibration (default %(default)s)")
        one.add_argument("--headroom", type=float, default=pack.HEADROOM, help="how much an activation may grow past "
                         "calibration before it saturates (default %(default)s)")
        one.add_argument("--original", type=pathlib.Path, help="also write the float16 original to this folder")
    return p


@command
def main(argv=None):
    args = parser().parse_args(argv)
    if args.tokens < 1 or not 1 <= args.headroom <= 64:
        raise UserError("--tokens must be 1 or more, --headroom from 1 to 64")
    if not args.output.parent.is_dir():
        raise UserError(f"{args.output.parent}: no such folder")
    if args.kind == "hf" and originals.kind(args.model) != "huggingface":
        raise UserError(f"{args.model}: not a Hugging Face folder; llama2.c files: python -m tools.convert llama2c, "
                        "folders that training wrote: python -m tools.pack")
    if args.kind == "llama2c" and originals.kind(args.model) != "llama2c":
        raise UserError(f"{args.model}: a folder; llama2c takes a .bin file, hf a folder")
    packed, texts, config, weights = convert(args.model, args.output.stem, args.tokenizer, args.slide, args.calibrate,
                                             args.tokens, args.headroom)
    report = pack.headroom_report(packed, texts)
    if args.original:
        write_original(args.original, config, weights, args.tokenizer or args.model / "tokenizer.json")
    size = packed.save(args.output)
    clipped = sum(row[0] for row in report)
    print(f"{args.output}: {size:,} bytes; {clipped} activations saturated in {sum(map(len, texts)):,} tokens; "
          f"least headroom " + ", ".join(f"{name} of layer {layer} {room:.1f}x" for _, layer, name, room in report[:3]))
    if clipped:
        print("warning: saturation costs quality; convert again with more --headroom or more --tokens", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
