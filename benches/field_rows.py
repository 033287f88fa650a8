"""The rows of `make bench-field`: a model of `published_models` or `published_more` at a batch, a length or
an image size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One program. Nought stands for what the model is published with."""

    model: str
    batch: int = 1
    tokens: int = 0
    pixels: int = 0

    @property
    def name(self) -> str:
        """The name of the row, of its folder, and on the command line."""
        parts = [self.model]
        parts += [f"b{self.batch}"] if self.batch != 1 else []
        parts += [f"t{self.tokens}"] if self.tokens else []
        parts += [f"p{self.pixels}"] if self.pixels else []
        return "-".join(parts)

    def build(self) -> Any:
        """The model with its arguments, the same ones in every process."""
        import torch
        from published_models import PUBLISHED
        from published_more import MORE
        from whole_models import WholeModel

        torch.manual_seed(0)
        builder = (PUBLISHED | MORE)[self.model]
        made = builder(tokens=self.tokens) if self.tokens else builder()
        arguments = []
        for argument in made.arguments:
            shape = list(argument.shape)
            shape[0] = self.batch
            if self.pixels and len(shape) == 4:
                shape[2:] = [self.pixels] * 2
            if shape == list(argument.shape):
                arguments.append(argument)
            elif argument.is_floating_point():
                arguments.append(torch.randn(shape))
            else:
                # Other rows of the same tokens: each is one that the model takes.
                arguments.append(torch.stack([argument[0].roll(i) for i in range(self.batch)]))
        return WholeModel(made.module, tuple(arguments), made.dynamic_shapes)


#: The architecture of `docs/reference/models.md` → its model here.
ARCHITECTURES = {
    "ViT": "vit_base",
    "DeiT": "deit_small",
    "BEiT": "beit_base",
    "DINOv2": "dinov2_small",
    "ConvNeXt": "convnext_tiny",
    "ConvNeXt V2": "convnextv2_tiny",
    "Swin": "swin_tiny",
    "SegFormer": "segformer_b0",
    "MobileViT": "mobilevit_small",
    "MobileNetV2": "mobilenet_v2",
    "EfficientNet": "efficientnet_b0",
    "ResNet": "resnet50",
    "RegNet": "regnet_y_040",
    "YOLOS": "yolos_tiny",
    "CLIP vision": "clip_vision",
    "BERT": "bert_base",
    "DistilBERT": "distilbert",
    "RoBERTa": "roberta_base",
    "ALBERT": "albert_base",
    "ELECTRA": "electra_small",
    "MPNet": "mpnet_base",
    "DeBERTa-v2": "deberta_v3_small",
    "ModernBERT": "modernbert_base",
    "MobileBERT": "mobilebert",
    "SqueezeBERT": "squeezebert",
    "GPT-2": "gpt2_prefill",
    "OPT": "opt_125m",
    "Llama": "llama_135m",
    "Qwen2": "qwen2_500m",
    "Gemma 3": "gemma3_270m",
    "GPT-NeoX": "pythia_70m",
    "T5": "t5_small_encoder",
    "BART": "bart_base_encoder",
    "Marian": "marian_encoder",
    "M2M-100": "m2m_100_encoder",
    "Whisper": "whisper_tiny",
    "Wav2Vec2": "wav2vec2_base",
    "HuBERT": "hubert_base",
    "WavLM": "wavlm_base",
    "Whisper encoder": "whisper_tiny_encoder",
    "AST": "ast_base",
    "CLIP": "clip",
    "SigLIP": "siglip_base",
    "VisualBERT": "visual_bert",
}
#: Architectures without a row, and why: their smallest published size in float32.
TOO_LARGE = {
    "Qwen3": "0.6 B parameters, more than an ONNX file without a second one holds",
    "Mistral": "7 B parameters",
    "Mixtral": "47 B parameters",
    "Qwen3 MoE": "30 B parameters",
    "Gemma": "2 B parameters",
    "Phi": "1.3 B parameters",
    "Phi-3": "3.8 B parameters",
    "SmolLM3": "3 B parameters",
}
#: Models that are in no architecture's row, or in that of another.
OTHERS = ("lstm", "minilm", "resnet18")

_BATCHED = ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "mobilevit_small")
_BATCHED += ("deit_small", "minilm", "distilbert", "lstm")
#: Models whose builders take a number of tokens.
LENGTHS = ("bert_base", "distilbert", "gpt2_prefill", "llama_135m", "modernbert_base")
_LARGE_IMAGES = ("resnet50", "mobilenet_v2", "convnext_tiny", "segformer_b0")

ROWS = (
    *(Row(model) for model in (*OTHERS, *ARCHITECTURES.values())),
    *(Row(model, batch=8) for model in _BATCHED),
    *(Row(model, tokens=tokens) for model in LENGTHS for tokens in (16, 1024, 4096)),
    *(
        Row(model, pixels=pixels)
        for model in _LARGE_IMAGES
        for pixels in (512, 1024)
        if (model, pixels) != ("segformer_b0", 512)  # its published size
    ),
)
BY_NAME = {row.name: row for row in ROWS}
