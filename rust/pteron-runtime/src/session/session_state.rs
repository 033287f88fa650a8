//! Mutable buffers of a session as callers see them: the method's own and those of its delegates, by name.

use crate::load::method_code::MethodCode;
use crate::session::delegate_call::{SessionDelegate, SessionDelegates};
use crate::session::output_collect::copy_of;
use crate::session::slots::Session;
use crate::{InputValue, TensorInput};
use pteron_core::error::printable;
use pteron_core::{DType, Error, ErrorKind, OwnedTensor, Result, TensorView, ValueId};

/// Copies of all buffers. An error where a delegate owns some and does not give them.
pub(crate) fn get(code: &MethodCode, session: &mut Session) -> Result<Vec<(String, OwnedTensor)>> {
    let mut out: Vec<(String, OwnedTensor)> = Vec::new();
    for (name, id) in &code.layout.state {
        out.push((name.clone(), copy_of(session.slot(*id)?)?));
    }
    for (index, delegate) in session.delegates.each() {
        for (name, tensor) in given(code, index, delegate)? {
            if out.iter().any(|(known, _)| *known == name) {
                return Err(at(
                    code,
                    index,
                    Error::delegate("a delegate gives a buffer that there is already"),
                )
                .argument(name)
                .expected("names that no other delegate and no buffer of the method has")
                .hint("a backend names its buffers as the model does"));
            }
            tensor.view()?;
            out.push((name, tensor));
        }
    }
    Ok(out)
}

/// Where a buffer that is to be set is.
enum Target<'a> {
    Own(ValueId, &'a TensorInput<'a>),
    Delegate(usize, &'a str, Box<OwnedTensor>),
}

/// Sets buffers. Names, dtypes and shapes are all checked before any is written; delegates come first, since
/// they can refuse.
pub(crate) fn set(code: &MethodCode, session: &mut Session, state: &[(&str, InputValue<'_>)]) -> Result<()> {
    let is_own = |name: &str| code.layout.state.iter().any(|(own, _)| own == name);
    let offered = match state.iter().all(|(name, _)| is_own(name)) {
        true => vec![],
        false => offered(code, session, state)?,
    };
    let mut targets = Vec::new();
    for (name, value) in state {
        targets.push(target(code, session, &offered, name, value).map_err(|e| e.argument(*name))?);
    }
    for (index, delegate) in session.delegates.each() {
        let mut mine: Vec<(&str, TensorView<'_>)> = Vec::new();
        for target in &targets {
            if let Target::Delegate(to, name, tensor) = target
                && *to == index
            {
                mine.push((name, tensor.view()?));
            }
        }
        if !mine.is_empty() {
            let state = delegate.state()?.ok_or_else(|| no_methods(code, index))?;
            state.set_state(&mine).map_err(|e| at(code, index, e))?;
        }
    }
    for target in targets {
        if let Target::Own(id, tensor) = target {
            session.set_tensor(id, tensor)?;
        }
    }
    Ok(())
}

/// Puts everything back to its initial contents.
pub(crate) fn reset(code: &MethodCode, session: &mut Session) -> Result<()> {
    for (index, delegate) in session.delegates.each() {
        if delegate.state()?.is_none() && owns(code, index).is_some() {
            return Err(no_methods(code, index));
        }
    }
    for (index, delegate) in session.delegates.each() {
        if let Some(state) = delegate.state()? {
            state.reset_state().map_err(|e| at(code, index, e))?;
        }
    }
    session.reset_state(code)
}

/// Does any delegate keep something between calls, as far as it or the file tells?
pub(crate) fn is_in_delegates(code: &MethodCode, delegates: &mut SessionDelegates) -> Result<bool> {
    let mut is_kept = code.delegate_buffers.iter().any(|(_, names)| !names.is_empty());
    for (index, delegate) in delegates.each() {
        if let Some(state) = delegate.state()? {
            is_kept |= !state.is_empty().map_err(|e| at(code, index, e))?;
        }
    }
    Ok(is_kept)
}

/// What a delegate gives; nothing from one without state.
fn given(
    code: &MethodCode,
    index: usize,
    delegate: &mut SessionDelegate,
) -> Result<Vec<(String, OwnedTensor)>> {
    match delegate.state()? {
        Some(state) => state.get_state().map_err(|e| at(code, index, e)),
        None if owns(code, index).is_some() => Err(no_methods(code, index)),
        None => Ok(vec![]),
    }
}

/// A buffer of a delegate: index of the delegate, name, tensor as it is now.
type Offered = (usize, String, OwnedTensor);

/// Buffers of all delegates. One without the methods is an error where `state` names a buffer of its own.
fn offered(
    code: &MethodCode,
    session: &mut Session,
    state: &[(&str, InputValue<'_>)],
) -> Result<Vec<Offered>> {
    let mut out = Vec::new();
    for (index, delegate) in session.delegates.each() {
        let is_named =
            owns(code, index).is_some_and(|own| own.iter().any(|n| state.iter().any(|(name, _)| name == n)));
        if delegate.state()?.is_some() || is_named {
            out.extend(given(code, index, delegate)?.into_iter().map(|(name, t)| (index, name, t)));
        }
    }
    Ok(out)
}

fn target<'a>(
    code: &MethodCode,
    session: &Session,
    offered: &[Offered],
    name: &'a str,
    value: &'a InputValue<'a>,
) -> Result<Target<'a>> {
    let own = code.layout.state.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
    let theirs = offered.iter().find(|(_, n, _)| n == name);
    let (dtype, shape): (DType, Vec<usize>) = match (own, theirs) {
        (Some(id), _) => {
            let slot = session.slot(id)?;
            (slot.meta().dtype(), slot.bound().to_vec())
        }
        (None, Some((.., tensor))) => (tensor.meta.dtype(), tensor.meta.shape().to_vec()),
        (None, None) => return Err(no_such_buffer(code, offered, name)),
    };
    let InputValue::Tensor(tensor) = value else {
        return Err(Error::input_type("a mutable buffer is set to something that is no tensor")
            .expected("a tensor")
            .got(value.kind_name())
            .hint("get_state() of the method shows what fits"));
    };
    if tensor.dtype != dtype || *tensor.shape != *shape {
        return Err(Error::input("a mutable buffer is set to another dtype or shape")
            .expected(format!("{dtype}{shape:?}"))
            .got(format!("{}{:?}", tensor.dtype, tensor.shape))
            .hint("get_state() of the method shows what fits"));
    }
    Ok(match (own, theirs) {
        (None, Some((index, ..))) => Target::Delegate(*index, name, Box::new(tensor.to_owned_tensor()?)),
        (own, _) => Target::Own(own.ok_or_else(|| Error::internal("a buffer has lost its place"))?, tensor),
    })
}

#[cold]
fn no_such_buffer(code: &MethodCode, offered: &[Offered], name: &str) -> Error {
    let own = code.layout.state.iter().map(|(n, _)| n);
    let known: Vec<String> = own.chain(offered.iter().map(|(_, n, _)| n)).map(|n| printable(n)).collect();
    Error::input("the method has no mutable buffer of this name")
        .expected(match known.is_empty() {
            true => "no names: the method has no mutable buffers".to_string(),
            false => format!("one of: {}", known.join(", ")),
        })
        .got(printable(name))
        .hint("get_state() of the method gives all buffers by name")
}

/// The buffers that a delegate owns, where the file says so.
fn owns(code: &MethodCode, index: usize) -> Option<&[String]> {
    code.delegate_buffers
        .iter()
        .find(|(at, names)| *at == index && !names.is_empty())
        .map(|(_, n)| n.as_slice())
}

#[cold]
fn no_methods(code: &MethodCode, index: usize) -> Error {
    let names = owns(code, index).unwrap_or_default().iter().map(|n| printable(n)).collect::<Vec<_>>();
    at(
        code,
        index,
        Error::delegate("a backend that owns mutable buffers does not let them be read or written"),
    )
    .expected("a delegate with get_state, set_state and reset_state")
    .got(format!("none of them, for {}", names.join(", ")))
    .hint("load the method again for fresh state, or leave these buffers to the runtime at export")
}

/// Adds which delegate it was.
fn at(code: &MethodCode, index: usize, error: Error) -> Error {
    let backend = code.ir.delegates.get(index).map_or("?", |d| d.backend.as_str());
    match error.kind() {
        ErrorKind::Cancelled => error,
        _ => error.with_kind(ErrorKind::Delegate).backend(backend),
    }
}
