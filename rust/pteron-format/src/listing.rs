//! x
use crate::ProgramFile;
/// The text form.
pub fn listing(program: &ProgramFile) -> String {
    format!("{program:?}")
}
