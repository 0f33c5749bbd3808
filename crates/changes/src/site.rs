//! Every place in the file of a change-set that changes or orders persistent bytes, by name.

wholly_media::sites! {
    /// The file of a group that is being parked, without its name.
    PARK_MAKE = "park.make";
    /// Bytes of such a file.
    PARK_WRITE = "park.write";
    /// Such a file is whole before it gets its name.
    PARK_SYNC = "park.sync";
    /// A parked group, or what was to be one, is removed.
    PARK_REMOVE = "park.remove";
}
