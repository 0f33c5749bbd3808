//! Compiles the C part of each peer whose library is installed, so that everything else builds without any of them.

fn main() {
    for (library, source, present) in
        [("libpmemobj", "c/pmemobj.c", "peer_pmemobj"), ("sqlite3", "c/sqlite.c", "peer_sqlite")]
    {
        println!("cargo::rerun-if-changed={source}");
        println!("cargo::rustc-check-cfg=cfg({present})");
        // First the archive, then what it needs: linkers look for symbols from left to right.
        match pkg_config::Config::new().cargo_metadata(false).probe(library) {
            Ok(found) => {
                cc::Build::new().file(source).includes(&found.include_paths).warnings(true).compile(present);
                println!("cargo::rustc-cfg={present}");
                println!("cargo::rustc-env={}_VERSION={}", present.to_uppercase(), found.version);
                for path in &found.link_paths {
                    println!("cargo::rustc-link-search=native={}", path.display());
                }
                for lib in &found.libs {
                    println!("cargo::rustc-link-lib={lib}");
                }
            }
            Err(e) => println!("cargo::warning=without the peer {library}: {}", first_line(&e.to_string())),
        }
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}
