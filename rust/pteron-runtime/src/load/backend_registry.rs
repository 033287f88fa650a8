//! Backends by id.

use crate::load::expand::Translate;
use pteron_core::error::printable;
use pteron_core::{Availability, Backend, Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Backends that every runtime has: their payloads become operators at load (`load/expand`). One that is registered under
/// such a name is used instead.
const EXPANDED: [(&str, Translate); 1] = [(pteron_xnnpack::BACKEND, pteron_xnnpack::expand)];

/// The backends of a runtime.
#[derive(Default, Clone)]
pub struct BackendRegistry {
    backends: BTreeMap<String, Arc<dyn Backend>>,
}

impl BackendRegistry {
    /// Adds `backend` under its `name`. A name that is taken is an error unless `is_replacing`.
    pub(crate) fn register(
        &mut self,
        name: String,
        backend: Arc<dyn Backend>,
        is_replacing: bool,
    ) -> Result<()> {
        if name.is_empty() {
            return Err(Error::input("a backend cannot be registered under an empty name")
                .argument("name")
                .expected("the backend id that programs carry, such as \"MyBackend\"")
                .got("an empty name")
                .hint("use the name that the exporter wrote; a program's backends(method) lists it"));
        }
        if !is_replacing && self.backends.contains_key(&name) {
            return Err(Error::delegate("a backend of this name is registered already")
                .backend(name)
                .hint("register it with replace=True, or in a runtime of its own"));
        }
        self.backends.insert(name, backend);
        Ok(())
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let expanded = EXPANDED.iter().map(|(name, _)| *name).filter(|name| self.translator(name).is_some());
        let mut names: Vec<String> =
            self.backends.keys().map(String::as_str).chain(expanded).map(str::to_string).collect();
        names.sort_unstable();
        names
    }

    /// What makes operators of the payloads of that backend at load, if anything does.
    pub(crate) fn translator(&self, name: &str) -> Option<Translate> {
        let (_, translate) = EXPANDED.iter().find(|(expanded, _)| *expanded == name)?;
        (!self.backends.contains_key(name)).then_some(*translate)
    }

    /// Can the backend of that name be used? `None` for one that there is not.
    pub(crate) fn availability(&self, name: &str) -> Option<Availability> {
        match self.backends.get(name) {
            Some(backend) => Some(backend.is_available()),
            None => self.translator(name).map(|_| Availability::Available),
        }
    }

    /// The backend of that name if it can be used; the error lists what is registered.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<dyn Backend>> {
        let backend = self.backends.get(name).cloned().ok_or_else(|| {
            let known = self.names().iter().map(|n| printable(n)).collect::<Vec<_>>().join(", ");
            Error::missing_backend("the program needs a backend that is not registered")
                .backend(name)
                .expected(format!("one of the registered backends: {known}"))
                .got(printable(name))
                .hint("register it with pteron.register_backend(name, backend) before load_method")
        })?;
        match backend.is_available() {
            Availability::Available => Ok(backend),
            Availability::Unavailable(reason) => Err(Error::missing_backend(
                "the program needs a backend that is not available on this machine",
            )
            .backend(name)
            .expected("an available backend")
            .got(printable(&reason))
            .hint("mend what the reason names, run on another machine, or export without this backend")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{CompileSpec, Delegate, ErrorKind, InitContext};

    struct Named(&'static str, Availability);
    impl Backend for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn is_available(&self) -> Availability {
            self.1.clone()
        }
        fn init(&self, _: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
            Err(Error::delegate("never initialised"))
        }
    }

    #[test]
    fn twice_is_an_error_unless_replacing() {
        let mut r = BackendRegistry::default();
        r.register("A".into(), Arc::new(Named("A", Availability::Available)), false).unwrap();
        let again = r.register("A".into(), Arc::new(Named("A", Availability::Available)), false).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Delegate);
        r.register("A".into(), Arc::new(Named("A", Availability::Unavailable("no GPU".into()))), true)
            .unwrap();
        let e = r.get("A").err().unwrap();
        assert_eq!(e.kind(), ErrorKind::MissingBackend);
        assert!(e.to_string().contains("no GPU"), "{e}");
    }

    #[test]
    fn a_registered_backend_comes_before_the_one_that_every_runtime_has() {
        let name = pteron_xnnpack::BACKEND;
        let mut r = BackendRegistry::default();
        assert!(r.translator(name).is_some() && r.availability(name) == Some(Availability::Available));
        assert!(r.translator("A").is_none() && r.availability("A").is_none());
        let reason = Availability::Unavailable("no GPU".into());
        r.register(name.into(), Arc::new(Named(name, reason.clone())), false).unwrap();
        assert!(r.translator(name).is_none() && r.availability(name) == Some(reason));
        assert_eq!(r.names(), [name]);
    }

    #[test]
    fn an_empty_name_is_refused() {
        let mut r = BackendRegistry::default();
        let e = r.register("".into(), Arc::new(Named("", Availability::Available)), true).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Input);
        assert!(e.detail().hint.is_some() && r.names() == [pteron_xnnpack::BACKEND], "{e}");
    }

    #[test]
    fn a_missing_backend_lists_the_registered_ones() {
        let mut r = BackendRegistry::default();
        assert!(r.get("X").err().unwrap().to_string().contains("registered backends: XnnpackBackend"));
        r.register("A".into(), Arc::new(Named("A", Availability::Available)), false).unwrap();
        r.register("B".into(), Arc::new(Named("B", Availability::Available)), false).unwrap();
        let text = r.get("X").err().unwrap().to_string();
        assert!(text.contains("A, B, XnnpackBackend") && text.contains("backend X"), "{text}");
    }
}
