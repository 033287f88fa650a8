//! Under construction by its owner.
