//! What errors advise, in the words of `pteron.h`: the runtime's own advice names calls of its Python form.

/// Parts of the runtime's texts that name Python calls, and what a C program does. Longer ones come before those that they
/// hold.
const WORDS: &[(&str, &str)] = &[
    // Remedies of kinds (`pteron_core::ErrorKind::remedy`).
    (
        "pteron.register_backend makes a backend known; program.backends(method) lists those needed",
        "pteron_runtime_register_backend makes a backend known; pteron_program_name with PTERON_LIST_BACKENDS lists those \
         needed",
    ),
    (
        "program.methods lists the methods; load_method() without a name loads \"forward\"",
        "pteron_program_name with PTERON_LIST_METHODS lists the methods",
    ),
    ("program.methods lists the methods", "pteron_program_name with PTERON_LIST_METHODS lists the methods"),
    (
        "program.inputs(method) and program.outputs(method) tell what a method takes and gives",
        "pteron_program_spec tells what a method takes and gives",
    ),
    ("; program.listing() shows the instruction", ""),
    ("; __cause__ holds what a backend written in Python raised", ""),
    ("pteron.Limits, or budget", "struct pteron_limits"),
    ("give it more time with deadline", "give it more time with deadline_ns"),
    ("load one method per thread, or use program.run()", "load one method for each thread"),
    // Hints.
    ("a program's backends(method) lists", "pteron_program_name with PTERON_LIST_BACKENDS lists"),
    ("a program's operators(method) lists", "pteron_program_name with PTERON_LIST_OPERATORS lists"),
    ("get_state() of the method", "pteron_method_get_state"),
    (
        "inputs(method) of the program tells what each input must be",
        "pteron_program_spec tells what each input must be",
    ),
    (
        "use one Method per thread, or program.run(), which keeps a pool of sessions",
        "load one method for each thread",
    ),
    (
        "register it with pteron.register_backend(name, backend) before load_method",
        "make it known with pteron_runtime_register_backend before pteron_method_load",
    ),
    ("register it with replace=True, or in a runtime of its own", "set replace, or use a runtime of its own"),
    (
        "the runtime's operators list what it has (in Python pteron.Runtime().operators), and exporting with \
         ExecutorchBackendConfig",
        "exporting with ExecutorchBackendConfig",
    ),
    (
        "this is a program: pass it first and its data file as data=...",
        "this is a program: pass it as source and its data file in data_files",
    ),
    (
        "it is loaded beside a program, not as one: load(program, data=...)",
        "it is loaded beside a program, not as one: data_files of struct pteron_load_options",
    ),
    (
        "that were written with it: load(program, data=[...])",
        "that were written with it: data_files of struct pteron_load_options",
    ),
    ("load each by itself with load_method, or", "load each by itself with pteron_method_load, or"),
    ("raise budget or limits.instructions", "raise instructions of struct pteron_limits"),
    ("no array, buffer or capsule over lent outputs", "nobody at lent outputs"),
    (
        "drop them, copy what is needed, or ask for outputs that own their memory (copy=True)",
        "copy what is needed before the next call",
    ),
];

/// `text` for the reader of `pteron.h`.
pub(crate) fn in_c(text: &str) -> String {
    let mut out = text.to_string();
    for (python, c) in WORDS.iter().filter(|(python, _)| text.contains(python)) {
        out = out.replace(python, c);
    }
    // Limits({name}=...): the names are those of the fields.
    if let Some((before, name)) = out.split_once("trusted: Limits(")
        && let Some((name, after)) = name.split_once("=...)")
    {
        out = format!("{before}trusted: {name} of struct pteron_limits{after}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::ErrorKind;
    use std::path::Path;

    /// Whether a text names something that only Python has. Exporting is done in Python, whoever runs the program.
    fn is_python(text: &str) -> bool {
        let calls = [
            "pteron.",
            "program.",
            "method.",
            "load_method",
            "load(",
            "copy=",
            "data=",
            "replace=",
            "Limits(",
            "s(method)",
            "()",
        ];
        let is_export = ["pteron.export(", "pteron.exir."].iter().any(|c| text.contains(c));
        let is_both = text.contains("in Python pteron.register_kernel(");
        calls.iter().any(|call| text.contains(call)) && !is_export && !is_both || text.contains("__cause__")
    }

    #[test]
    fn remedies_name_nothing_of_python() {
        for kind in ErrorKind::ALL {
            let text = in_c(kind.remedy());
            assert!(!is_python(&text), "{text}");
        }
    }

    /// Every literal that follows `.hint(` in the sources of the run half.
    fn hints(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                hints(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for piece in text.split(".hint(").skip(1) {
                let Some((_, rest)) = piece.split_once('"') else { continue };
                let mut literal = String::new();
                let mut chars = rest.chars();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('\n') => {
                                let rest = chars.as_str().trim_start();
                                chars = rest.chars();
                            }
                            Some(c) => literal.push(c),
                            None => {}
                        },
                        c => literal.push(c),
                    }
                }
                found.push(literal);
            }
        }
    }

    #[test]
    fn hints_name_nothing_of_python() {
        // Of calls that only other front doors make: trees of arguments, pooled runs, devices at export.
        const OTHERS: [&str; 7] = [
            "convert them with to_dense() before export",
            "pass flat values to method.execute",
            "pass a flat list to method.execute",
            "program.inputs(method) lists names and types; a list in their order works too",
            "use load_method, which gives a session of its own",
            "ExecutorchBackendConfig(",
            "MemoryPlanningPass(",
        ];
        let rust = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = vec![];
        for name in ["core", "format", "kernels", "cpu", "xnnpack", "runtime", "plugin"] {
            hints(&rust.join(format!("pteron-{name}/src")), &mut found);
        }
        assert!(found.len() > 120, "{}", found.len());
        // Load's hint about limits is completed with a name.
        assert_eq!(
            in_c("raise the limit if the program is trusted: Limits(rank=...)"),
            "raise the limit if the program is trusted: rank of struct pteron_limits"
        );
        let left: Vec<String> = found.iter().map(|hint| in_c(hint)).filter(|hint| is_python(hint)).collect();
        let left: Vec<&String> =
            left.iter().filter(|h| !OTHERS.iter().any(|other| h.contains(other))).collect();
        assert!(left.is_empty(), "hints that a C program cannot follow: a row of WORDS for each\n{left:#?}");
    }

    #[test]
    fn every_row_is_of_use() {
        let rust = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut sources = String::new();
        fn read(folder: &Path, to: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => read(&path, to),
                    false => to.push_str(&std::fs::read_to_string(&path).unwrap()),
                }
            }
        }
        for name in ["core", "format", "runtime"] {
            read(&rust.join(format!("pteron-{name}/src")), &mut sources);
        }
        let mut joined = String::new();
        for (i, piece) in sources.split("\\\n").enumerate() {
            joined.push_str(if i == 0 { piece } else { piece.trim_start() });
        }
        let joined = joined.replace("\\\"", "\"");
        for (python, _) in WORDS {
            assert!(joined.contains(python), "no error says this any more: {python}");
        }
    }
}
