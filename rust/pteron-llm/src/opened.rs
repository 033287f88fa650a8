//! What the generations of a generator share.

use crate::model::cache_pool::CachePool;
use crate::model::folder::ModelFolder;
#[cfg(feature = "chat-templates")]
use crate::text::chat_template::ChatTemplate;
use crate::text::tokenizer::Tokenizer;
use std::sync::Arc;

/// An open folder with its caches.
pub(crate) struct Opened {
    pub(crate) folder: Arc<ModelFolder>,
    pub(crate) tokenizer: Box<dyn Tokenizer>,
    #[cfg(feature = "chat-templates")]
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) eos_ids: Vec<u32>,
    pub(crate) bos_id: Option<u32>,
    pub(crate) caches: CachePool,
}
