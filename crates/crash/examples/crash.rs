fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut limits = wholly_crash::Limits::hunt();
    limits.violations = 2;
    let (mut names, mut settings) = (Vec::new(), Vec::new());
    for a in &args {
        match a.as_str() {
            a if a.contains(':') => {
                println!("{}", wholly_crash::replay(a).unwrap());
                return;
            }
            "quick" => limits = wholly_crash::Limits::quick(),
            "mutants" | "faults" => {}
            "one" => limits.workers = 1,
            a if wholly_crash::Setting::find(a).is_some() => settings.push(wholly_crash::Setting::named(a)),
            a if a.starts_with("r") && a.contains("..") => {
                let (x, y) = a[1..].split_once("..").unwrap();
                names.extend((x.parse::<u64>().unwrap()..y.parse().unwrap()).map(wholly_crash::catalogue::random));
            }
            a => names.push(wholly_crash::catalogue::find(a).unwrap()),
        }
    }
    if names.is_empty() {
        names = wholly_crash::catalogue::all();
    }
    if args.iter().any(|a| a == "faults") {
        for s in &settings {
            let mut all = wholly_crash::faults::FaultOutcome::default();
            for w in &names {
                let mut o = wholly_crash::faults::faults(w, s, 200);
                o.merge(wholly_crash::faults::lost_flushes(w, s));
                println!("{} {} {o}", w.name, s.name);
                for v in o.violations.iter().take(4) {
                    println!("  {} {}", v.replay, v.what);
                }
                all.merge(o);
            }
            println!("{all}");
        }
        return;
    }
    if args.iter().any(|a| a == "mutants") {
        limits.violations = 1;
        for s in &settings {
            wholly_crash::mutants::cheap_first(&mut names, s);
            for m in wholly_crash::mutants::mutations(&names, s) {
                let t = std::time::Instant::now();
                println!("{:.1}s {}", t.elapsed().as_secs_f32(), wholly_crash::mutants::hunt(m, &names, s, &limits));
            }
        }
        return;
    }
    let mut all = wholly_crash::Outcome::default();
    for s in &settings {
        for w in &names {
            let t = std::time::Instant::now();
            let o = wholly_crash::explore(w, s, &limits);
            println!("{} {} {:.1}s {o}", w.name, s.name, t.elapsed().as_secs_f32());
            for v in &o.violations {
                println!("  {v}");
            }
            all.merge(o);
        }
    }
    println!("{all}");
}
