//! Python bindings: conversions, no logic.
