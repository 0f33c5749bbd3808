//! The mistakes.

/// What [`Planted`](super::Planted) does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Mistake {
    RenameDropsNoReplace,
    ExchangeOnlyRenames,
    RenameForgetsTimes,
    UnlinkForgetsTimes,
    ChmodForgetsTimes,
    WriteForgetsTimes,
    ReadForgetsTimes,
    MkdirForgetsTimes,
    UmaskIsIgnored,
    EverybodyOpensEverything,
    AccessIsAlwaysGranted,
    StickyIsIgnored,
    WriteKeepsSetIds,
    AppendFlagIsIgnored,
    TruncFlagIsIgnored,
    ExclFlagIsIgnored,
    ReaddirSkipsOne,
    DirectoriesKeepNoSetgid,
    DotDotStays,
    FullDirectoriesSeemRemoved,
    RemovedFilesAreEmpty,
    LinkCountsAreOne,
    LongNamesAreCut,
    SeekSeesNoHoles,
    PunchDoesNothing,
    KeepSizeIsIgnored,
    CopyStartsAtZero,
    TruncateNeverGrows,
    XattrFlagsAreIgnored,
    XattrsAreNotRemoved,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 30] = [
        Mistake::RenameDropsNoReplace,
        Mistake::ExchangeOnlyRenames,
        Mistake::RenameForgetsTimes,
        Mistake::UnlinkForgetsTimes,
        Mistake::ChmodForgetsTimes,
        Mistake::WriteForgetsTimes,
        Mistake::ReadForgetsTimes,
        Mistake::MkdirForgetsTimes,
        Mistake::UmaskIsIgnored,
        Mistake::EverybodyOpensEverything,
        Mistake::AccessIsAlwaysGranted,
        Mistake::StickyIsIgnored,
        Mistake::WriteKeepsSetIds,
        Mistake::AppendFlagIsIgnored,
        Mistake::TruncFlagIsIgnored,
        Mistake::ExclFlagIsIgnored,
        Mistake::ReaddirSkipsOne,
        Mistake::DirectoriesKeepNoSetgid,
        Mistake::DotDotStays,
        Mistake::FullDirectoriesSeemRemoved,
        Mistake::RemovedFilesAreEmpty,
        Mistake::LinkCountsAreOne,
        Mistake::LongNamesAreCut,
        Mistake::SeekSeesNoHoles,
        Mistake::PunchDoesNothing,
        Mistake::KeepSizeIsIgnored,
        Mistake::CopyStartsAtZero,
        Mistake::TruncateNeverGrows,
        Mistake::XattrFlagsAreIgnored,
        Mistake::XattrsAreNotRemoved,
    ];

    /// Whether it shows only where calls can be made as several users.
    pub fn needs_users(self) -> bool {
        use Mistake::*;
        matches!(self, EverybodyOpensEverything | StickyIsIgnored | WriteKeepsSetIds)
    }

    /// Whether it shows in what [`differ`](crate::differ) compares: calls of one user, and not times.
    pub fn shows_in_sequences(self) -> bool {
        use Mistake::*;
        let times = [
            RenameForgetsTimes,
            UnlinkForgetsTimes,
            ChmodForgetsTimes,
            WriteForgetsTimes,
            ReadForgetsTimes,
            MkdirForgetsTimes,
        ];
        let not_called = [AccessIsAlwaysGranted, DotDotStays, LongNamesAreCut, ReaddirSkipsOne];
        !self.needs_users() && !times.contains(&self) && !not_called.contains(&self)
    }
}
