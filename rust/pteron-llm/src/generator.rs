//! [`Generator`]: a folder with a language model, text in and text out.

use crate::generation::{Generation, Plan};
use crate::generation_config::GenerationConfig;
use crate::generation_result::GenerationResult;
use crate::model::cache_pool::CachePool;
use crate::model::folder::ModelFolder;
use crate::model::json_file::read_object;
use crate::opened::Opened;
use crate::sampling::sampler::Sampler;
#[cfg(feature = "chat-templates")]
use crate::text::chat_template::ChatTemplate;
#[cfg(feature = "chat-templates")]
use crate::text::message::Message;
use crate::text::stop_strings::StopStrings;
use crate::text::tokenizer::Tokenizer;
use pteron_core::{Error, Result};
use pteron_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a folder is opened.
#[derive(Clone)]
pub struct GeneratorOptions {
    /// Kernels, backends and threads; `None`: the process-wide ones.
    pub runtime: Option<Arc<Runtime>>,
    /// Threads of a call; `None`: all of the runtime's.
    pub threads: Option<usize>,
    /// Tokens of a prompt in one call at most, between two chances to stop.
    pub prefill_chunk: usize,
    /// Caches that are kept for prompts with the same beginning.
    pub idle_caches: usize,
    /// The folder that the tokenizer's files are in, or its `tokenizer.json`; `None`: the model's folder.
    pub tokenizer: Option<PathBuf>,
    /// Data files (`.ptd`) of a program that is opened alone.
    pub data: Vec<PathBuf>,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        GeneratorOptions {
            runtime: None,
            threads: None,
            prefill_chunk: 512,
            idle_caches: 2,
            tokenizer: None,
            data: Vec::new(),
        }
    }
}

/// What stands before a text.
#[derive(Debug, Clone, Copy)]
pub enum Prompt<'a> {
    /// A text.
    Text(&'a str),
    /// Its tokens.
    Tokens(&'a [u32]),
    /// The messages of a conversation, which the folder's chat template turns into a text.
    #[cfg(feature = "chat-templates")]
    Messages(&'a [Message]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Prompt::Text(text)
    }
}

impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Prompt::Tokens(tokens)
    }
}

#[cfg(feature = "chat-templates")]
impl<'a> From<&'a [Message]> for Prompt<'a> {
    fn from(messages: &'a [Message]) -> Self {
        Prompt::Messages(messages)
    }
}

/// Generates text with the language model of a folder.
///
/// The weights are there once, whatever number of threads generate at the same time: every generation that runs has a
/// cache of its own. A clone is the same generator.
#[derive(Clone)]
pub struct Generator {
    opened: Arc<Opened>,
}

impl Generator {
    /// Opens a folder: `model.pte` beside `tokenizer.json` and JSON files of a configuration. Or a program alone, by its
    /// path: what it needs to know is in its constant methods, and `options.tokenizer` is needed.
    ///
    /// Errors: `NotFound` without a program or tokenizer, `Program` where a file is damaged, `Input` where the tokenizer
    /// is another model's.
    #[cfg(feature = "tokenizers")]
    pub fn open(path: impl AsRef<Path>, options: GeneratorOptions) -> Result<Generator> {
        let path = path.as_ref();
        let folder = || if path.is_file() { path.parent().unwrap_or(path) } else { path };
        let place = options.tokenizer.as_deref().unwrap_or_else(folder);
        let file = if place.is_dir() { place.join("tokenizer.json") } else { place.to_path_buf() };
        let tokenizer = crate::text::tokenizer_json::TokenizerJson::open(&file)?;
        Generator::with_tokenizer(path, Box::new(tokenizer), options)
    }

    /// The same with a tokenizer of the caller's; that of the options gives its tokenizer_config.json and chat template
    /// alone.
    ///
    /// Errors: as `open`.
    pub fn with_tokenizer(
        path: impl AsRef<Path>,
        tokenizer: Box<dyn Tokenizer>,
        options: GeneratorOptions,
    ) -> Result<Generator> {
        let runtime = options.runtime.map_or_else(Runtime::shared, Ok)?;
        let folder = Arc::new(ModelFolder::open(&runtime, path.as_ref(), &options.data)?);
        let signature = folder.signature();
        if folder.program().methods().contains(&"encode") {
            return Err(Error::input("the folder holds an encoder-decoder")
                .expected("a decoder")
                .hint("open it in Python with pteron.llm.Text2TextGenerator or Transcriber"));
        }
        if signature.batch != 1 {
            return Err(Error::program("the program takes several sequences in a call")
                .expected("1")
                .got(signature.batch.to_string()));
        }
        if tokenizer.size() > signature.vocabulary {
            return Err(Error::input("the tokenizer is another model's")
                .expected(format!("tokens below {}, as the program has logits", signature.vocabulary))
                .got(format!("tokens up to {}", tokenizer.size().saturating_sub(1))));
        }
        let beside = match &options.tokenizer {
            None => folder.path.clone(),
            Some(place) if place.is_dir() => place.clone(),
            Some(place) => place.parent().unwrap_or(place).to_path_buf(),
        };
        let config = match &options.tokenizer {
            None => folder.tokenizer_config.clone(),
            Some(_) => read_object(&beside.join("tokenizer_config.json"))?,
        };
        let token_of = |name: &str| {
            let token = config.get(name)?;
            tokenizer.special(token.get("content").unwrap_or(token).as_str()?)
        };
        let eos_ids = match folder.eos_ids() {
            [] => token_of("eos_token").into_iter().collect(),
            stated => stated.to_vec(),
        };
        Ok(Generator {
            opened: Arc::new(Opened {
                bos_id: folder.bos_id().or_else(|| token_of("bos_token")),
                #[cfg(feature = "chat-templates")]
                template: ChatTemplate::open(&beside, &config)?,
                caches: CachePool::new(&folder, options.threads, options.prefill_chunk, options.idle_caches),
                eos_ids,
                tokenizer,
                folder,
            }),
        })
    }

    /// What the folder states.
    pub fn folder(&self) -> &ModelFolder {
        &self.opened.folder
    }

    /// Of the folder.
    pub fn tokenizer(&self) -> &dyn Tokenizer {
        &*self.opened.tokenizer
    }

    /// Tokens that end a text: as the program or the configurations state, else the tokenizer's.
    pub fn eos_ids(&self) -> &[u32] {
        &self.opened.eos_ids
    }

    /// The text that follows a prompt.
    ///
    /// Errors: `Input` where the prompt does not fit into the cache, has tokens that the model does not know, or a setting
    /// is out of range; what the program raises. The next call works.
    pub fn generate<'a>(
        &self,
        prompt: impl Into<Prompt<'a>>,
        config: &GenerationConfig,
    ) -> Result<GenerationResult> {
        self.stream(prompt, config)?.result()
    }

    /// The same text piece by piece.
    ///
    /// Errors: as `generate`.
    pub fn stream<'a>(&self, prompt: impl Into<Prompt<'a>>, config: &GenerationConfig) -> Result<Generation> {
        let prompt = self.tokens_of(prompt)?;
        let plan = self.plan(prompt, config)?;
        let cache = self.opened.caches.take(&plan.prompt)?;
        Ok(Generation::new(self.opened.clone(), cache, plan))
    }

    /// The tokens of a prompt, checked.
    ///
    /// Errors: as `generate`.
    pub fn tokens_of<'a>(&self, prompt: impl Into<Prompt<'a>>) -> Result<Vec<u32>> {
        let mut tokens = match prompt.into() {
            Prompt::Text(text) => self.opened.tokenizer.encode(text, true)?,
            Prompt::Tokens(tokens) => tokens.to_vec(),
            #[cfg(feature = "chat-templates")]
            Prompt::Messages(messages) => {
                self.opened.tokenizer.encode(&self.render(messages, "{}")?, false)?
            }
        };
        if tokens.is_empty() {
            tokens.extend(self.opened.bos_id);
        }
        self.check(&tokens)?;
        Ok(tokens)
    }

    /// The prompt of messages, by the chat template. `variables`: what else it looks at, such as `tools`: a JSON object.
    ///
    /// Errors: `Input` where the folder has no template or it refuses the messages, `Program` where it fails.
    #[cfg(feature = "chat-templates")]
    pub fn render(&self, messages: &[Message], variables: &str) -> Result<String> {
        let Some(template) = &self.opened.template else {
            return Err(Error::input("the folder has no chat template")
                .hint("give the prompt as text, or put the model's chat_template.jinja into the folder"));
        };
        template.render(messages, variables)
    }

    fn plan(&self, prompt: Vec<u32>, config: &GenerationConfig) -> Result<Plan> {
        let folder = &self.opened.folder;
        let stated = &folder.generation_config;
        // The last token of a text is never computed, so that one more than the cache takes fits.
        let room = folder.max_seq_len().saturating_sub(prompt.len()).saturating_add(1);
        let mut eos = if config.ignore_eos { Vec::new() } else { self.opened.eos_ids.clone() };
        eos.extend(&config.stop_token_ids);
        Ok(Plan {
            sampler: Sampler::new(config.sampling(stated)?, &prompt)?,
            most_tokens: config.new_tokens(stated, room)?,
            fewest_tokens: config.min_new_tokens,
            eos,
            stops: StopStrings::new(&config.stop_strings),
            logprobs: config.logprobs,
            skip_special_tokens: config.skip_special_tokens,
            deadline: config.deadline,
            prompt,
        })
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        let folder = &self.opened.folder;
        if tokens.is_empty() {
            return Err(Error::input("the prompt has no tokens").expected("at least one token"));
        }
        if tokens.len() > folder.max_seq_len() {
            return Err(Error::input("the prompt does not fit into the cache")
                .expected(format!("at most {} tokens", folder.max_seq_len()))
                .got(format!("{} tokens", tokens.len()))
                .hint("shorten the prompt, or export the model with a larger max_seq_len"));
        }
        let vocabulary = folder.signature().vocabulary;
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            None => Ok(()),
            Some(token) => Err(Error::input("the prompt has a token that the model does not know")
                .expected(format!("numbers from 0 to {}", vocabulary.saturating_sub(1)))
                .got(token.to_string())),
        }
    }
}
