//! A program that reads the directory of a store between any two of its host calls: see the module `reader`.

use wholly_crash::{Setting, Workload, catalogue, read_beside, sequences};

#[test]
fn who_reads_beside_a_store_sees_files_as_they_were_or_as_they_are_to_be() {
    let mut workloads: Vec<Workload> = catalogue::all();
    workloads.extend(sequences::by_hand());
    workloads.extend(sequences::parked());
    workloads.extend(sequences::staged());
    workloads.extend(sequences::adopted());
    workloads.extend(sequences::ones());
    for setting in ["disk", "pmem", "disk-ext4"] {
        let setting = Setting::named(setting);
        let (mut looks, mut wrong) = (0, Vec::new());
        for workload in &workloads {
            match read_beside(workload, &setting) {
                Ok(some) => looks += some,
                Err(what) => wrong.push(what),
            }
        }
        println!("{}: {} workloads, {looks} looks", setting.name, workloads.len());
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(looks > 2_000, "only {looks} looks");
    }
}
