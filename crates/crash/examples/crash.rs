//! The explorer without the rest of Wholly: what `wholly crash` does.

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    wholly_crash::command(&arguments, &mut std::io::stdout())
}
