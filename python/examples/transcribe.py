"""Writes down what is said in a WAV file, each part with its time.

    python transcribe.py export openai/whisper-base.en whisper  # torch, transformers; a Hub name or a folder
    python transcribe.py run whisper talk.wav                                            # no torch

``pip install "pteron[llm]"`` for the second command. ``ffmpeg -i FILE -ac 1 -ar 16000 talk.wav`` converts
other sounds.
"""

from __future__ import annotations

import argparse

import pteron.llm


def export(model: str, folder: str, scheme: str | None) -> None:
    """A Whisper of transformers as a folder: program, tokenizer, what its tokens mean."""
    from transformers import AutoTokenizer, WhisperForConditionalGeneration

    speech = WhisperForConditionalGeneration.from_pretrained(model).eval()
    longest = speech.config.max_target_positions
    tokenizer = AutoTokenizer.from_pretrained(model)
    pteron.llm.export(speech, folder, max_seq_len=longest, tokenizer=tokenizer, scheme=scheme)


def run(folder: str, sound: str, language: str | None) -> None:
    """Prints every segment as soon as it is written."""
    transcriber = pteron.llm.Transcriber(folder)
    for segment in transcriber.segments(sound, language=language):
        print(f"{segment.start:7.2f} to {segment.end:7.2f} s {segment.text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="make the folder (torch)")
    exporting.add_argument("model", help="name or folder of a Whisper of transformers")
    exporting.add_argument("folder")
    exporting.add_argument("--scheme", help="weights in fewer bits: int8-weight, int4-weight")
    running = commands.add_parser("run", help="write down a WAV file (no torch)")
    running.add_argument("folder")
    running.add_argument("sound", help="WAV file")
    running.add_argument("--language", help="code of the language (default: found in the first 30 seconds)")
    options = parser.parse_args()
    if options.command == "export":
        export(options.model, options.folder, options.scheme)
    else:
        run(options.folder, options.sound, options.language)


if __name__ == "__main__":
    main()
