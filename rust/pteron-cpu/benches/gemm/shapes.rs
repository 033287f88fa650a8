//! The multiplications that the models of the benches hold, as data. A shape that several models share
//! is listed once, under all of them.

/// A multiplication.
pub struct Shape {
    /// Where it is from.
    pub model: &'static str,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// M x K times a constant K x N, and a bias.
    Constant,
    /// So many products whose right-hand side is computed too.
    Batch(usize),
    /// The same with a right-hand side that is given as N x K (queries times keys).
    BatchTransposed(usize),
}

const fn shape(model: &'static str, m: usize, k: usize, n: usize) -> Shape {
    Shape { model, m, k, n, kind: Kind::Constant }
}

const fn batch(model: &'static str, kind: Kind, m: usize, k: usize, n: usize) -> Shape {
    Shape { model, m, k, n, kind }
}

const RESNET: &str = "ResNet-50";
const MOBILE: &str = "MobileNetV2";
const EFFICIENT: &str = "EfficientNet-B0";
const BOTH: &str = "MobileNetV2, EfficientNet-B0";
const MINILM: &str = "MiniLM";
const VIT: &str = "ViT-base";
const LSTM: &str = "LSTM";
const GPT2: &str = "GPT-2";

/// Pointwise convolutions at 224 x 224 pixels (M is pixels), transformers with 128 tokens (ViT: 197), an
/// LSTM with 256 inputs and 256 hidden values at batch 1 and 8, the last layers at batch 1, and GPT-2
/// decoding one token.
pub const SHAPES: &[Shape] = &[
    shape(RESNET, 3136, 64, 64),
    shape(RESNET, 3136, 64, 256),
    shape(RESNET, 3136, 256, 64),
    shape(RESNET, 3136, 256, 128),
    shape(RESNET, 784, 128, 512),
    shape(RESNET, 784, 512, 128),
    shape(RESNET, 784, 256, 512),
    shape(RESNET, 784, 512, 256),
    shape(RESNET, 196, 256, 1024),
    shape(RESNET, 196, 1024, 256),
    shape(RESNET, 196, 512, 1024),
    shape(RESNET, 196, 1024, 512),
    shape(RESNET, 49, 512, 2048),
    shape(RESNET, 49, 2048, 512),
    shape(RESNET, 49, 1024, 2048),
    shape(RESNET, 1, 2048, 1000),
    shape(BOTH, 12544, 32, 16),
    shape(BOTH, 12544, 16, 96),
    shape(BOTH, 3136, 96, 24),
    shape(BOTH, 3136, 24, 144),
    shape(MOBILE, 3136, 144, 24),
    shape(MOBILE, 784, 144, 32),
    shape(MOBILE, 784, 32, 192),
    shape(MOBILE, 784, 192, 32),
    shape(MOBILE, 196, 192, 64),
    shape(MOBILE, 196, 64, 384),
    shape(MOBILE, 196, 384, 64),
    shape(MOBILE, 196, 384, 96),
    shape(MOBILE, 196, 96, 576),
    shape(MOBILE, 196, 576, 96),
    shape(MOBILE, 49, 576, 160),
    shape(MOBILE, 49, 160, 960),
    shape(MOBILE, 49, 960, 160),
    shape(MOBILE, 49, 960, 320),
    shape(BOTH, 49, 320, 1280),
    shape(BOTH, 1, 1280, 1000),
    shape(EFFICIENT, 784, 144, 40),
    shape(EFFICIENT, 784, 40, 240),
    shape(EFFICIENT, 784, 240, 40),
    shape(EFFICIENT, 196, 240, 80),
    shape(EFFICIENT, 196, 80, 480),
    shape(EFFICIENT, 196, 480, 80),
    shape(EFFICIENT, 196, 480, 112),
    shape(EFFICIENT, 196, 112, 672),
    shape(EFFICIENT, 196, 672, 112),
    shape(EFFICIENT, 49, 672, 192),
    shape(EFFICIENT, 49, 192, 1152),
    shape(EFFICIENT, 49, 1152, 192),
    shape(EFFICIENT, 49, 1152, 320),
    shape(EFFICIENT, 1, 1152, 48),
    shape(EFFICIENT, 1, 48, 1152),
    shape(MINILM, 128, 384, 384),
    shape(MINILM, 128, 384, 1536),
    shape(MINILM, 128, 1536, 384),
    batch(MINILM, Kind::BatchTransposed(12), 128, 32, 128),
    batch(MINILM, Kind::Batch(12), 128, 128, 32),
    shape(MINILM, 1, 384, 384),
    shape(VIT, 197, 768, 768),
    shape(VIT, 197, 768, 2304),
    shape(VIT, 197, 768, 3072),
    shape(VIT, 197, 3072, 768),
    batch(VIT, Kind::BatchTransposed(12), 197, 64, 197),
    batch(VIT, Kind::Batch(12), 197, 197, 64),
    shape(VIT, 1, 768, 1000),
    shape(LSTM, 1, 256, 1024),
    shape(LSTM, 8, 256, 1024),
    shape(GPT2, 128, 768, 768),
    shape(GPT2, 128, 768, 2304),
    shape(GPT2, 128, 768, 3072),
    shape(GPT2, 128, 3072, 768),
    shape(GPT2, 128, 768, 50257),
    batch(GPT2, Kind::BatchTransposed(12), 128, 64, 128),
    batch(GPT2, Kind::Batch(12), 128, 128, 64),
    shape(GPT2, 1, 768, 768),
    shape(GPT2, 1, 768, 2304),
    shape(GPT2, 1, 768, 3072),
    shape(GPT2, 1, 3072, 768),
    shape(GPT2, 1, 768, 50257),
    // None of the above have these row counts, for which wide tiles are.
    shape("2 rows", 2, 768, 3072),
    shape("4 rows", 4, 768, 3072),
    shape("2 rows", 2, 384, 384),
    shape("4 rows", 4, 384, 384),
    shape("5 rows", 5, 768, 768),
    shape("16 rows", 16, 768, 768),
    shape("large", 512, 1024, 4096),
    shape("large", 1024, 1024, 1024),
];
