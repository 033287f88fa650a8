//! Parameters of our own functions (not the inputs of a program): what has the wrong type or range is refused
//! with an error that names the parameter.

use crate::errors::{to_python, type_name};
use pteron_core::Error;
use pteron_core::error::printable;
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyMapping, PyString};
use std::time::Duration;

/// The exception for a parameter of the wrong type.
#[cold]
pub fn wrong_type(object: &Bound<'_, PyAny>, name: &str, expected: &str, hint: &str) -> PyErr {
    let error = Error::input_type("a parameter has the wrong type")
        .argument(name)
        .expected(expected)
        .got(type_name(object))
        .hint(hint);
    to_python(object.py(), error)
}

/// The exception for a parameter whose value is out of range.
#[cold]
pub fn out_of_range(object: &Bound<'_, PyAny>, name: &str, expected: &str) -> PyErr {
    let got = object.str().map(|text| printable(&text.to_string()));
    let error = Error::input("a parameter is out of range")
        .argument(name)
        .expected(expected)
        .got(got.unwrap_or_else(|_| type_name(object)))
        .hint("leave it out for the default");
    to_python(object.py(), error)
}

/// The exception for a compiled backend that is registered under another name than its own.
#[cold]
pub fn other_name(py: Python<'_>, own: &str, given: &str) -> PyErr {
    let error = Error::input("a compiled backend is registered under another name than its own")
        .argument("name")
        .expected(printable(own))
        .got(printable(given))
        .hint("programs name it by its own name");
    to_python(py, error)
}

/// True or False.
pub fn flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    object.extract().map_err(|_| wrong_type(object, name, "True or False", "leave it out for the default"))
}

/// An integer of at least `min` (bools are none).
pub fn count(object: Option<&Bound<'_, PyAny>>, name: &str, min: u64) -> PyResult<Option<u64>> {
    let Some(object) = object.filter(|o| !o.is_none()) else { return Ok(None) };
    let expected = format!("an int of at least {min}");
    if object.is_instance_of::<PyBool>() || !object.hasattr(pyo3::intern!(object.py(), "__index__"))? {
        return Err(wrong_type(object, name, &expected, "leave it out for the default"));
    }
    match object.extract::<u64>() {
        Ok(value) if value >= min => Ok(Some(value)),
        _ => Err(out_of_range(object, name, &expected)),
    }
}

/// As [`count`], for sizes in memory.
pub fn size(object: Option<&Bound<'_, PyAny>>, name: &str, min: u64) -> PyResult<Option<usize>> {
    match (object, count(object, name, min)?) {
        (Some(object), Some(value)) => {
            let value = usize::try_from(value);
            value.map(Some).map_err(|_| out_of_range(object, name, "a size that fits this machine"))
        }
        _ => Ok(None),
    }
}

/// A number of seconds; infinity, and what a clock cannot count, is a time without end.
pub fn seconds(object: Option<&Bound<'_, PyAny>>, name: &str, expected: &str) -> PyResult<Option<Duration>> {
    let Some(object) = object.filter(|o| !o.is_none()) else { return Ok(None) };
    let hint = format!("half a second is {name}=0.5");
    let seconds: f64 = object.extract().map_err(|_| wrong_type(object, name, expected, &hint))?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(out_of_range(object, name, expected));
    }
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

/// A string.
pub fn text<'a>(object: &'a Bound<'_, PyAny>, name: &str, hint: &str) -> PyResult<&'a str> {
    match object.cast::<PyString>() {
        Ok(text) => text.to_str(),
        Err(_) => Err(wrong_type(object, name, "a str", hint)),
    }
}

/// A dict, or a copy of another mapping as one.
pub fn mapping<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    expected: &str,
    hint: &str,
) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    match object.cast::<PyMapping>() {
        Ok(mapping) => PyDict::from_sequence(mapping.items()?.as_any()),
        Err(_) => Err(wrong_type(object, name, expected, hint)),
    }
}

/// Name of a method.
pub fn method_name<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    text(
        object,
        "method",
        "pass the name of the method first, such as \"forward\"; program.methods lists them",
    )
}

/// An instance of one of our classes, which users know as `pteron.{class}`.
pub fn instance<'a, 'py, T: PyClass>(
    object: Option<&'a Bound<'py, PyAny>>,
    name: &str,
    class: &str,
) -> PyResult<Option<&'a Bound<'py, T>>> {
    let Some(object) = object.filter(|o| !o.is_none()) else { return Ok(None) };
    let expected = format!("a pteron.{class}");
    object
        .cast::<T>()
        .map(Some)
        .map_err(|_| wrong_type(object, name, &expected, &format!("make one with pteron.{class}(...)")))
}
