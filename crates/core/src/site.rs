//! Every place in the store and its log that changes or orders persistent bytes, by name.
//!
//! The crash explorer drops each one in turn and asks that some workload notices; it also asks that a crash was tried
//! at each.

use wholly_media::Site;

pub use crate::log::site::*;
pub use wholly_changes::site::*;

/// All of them: of the log, of change-sets, then of the store.
pub const ALL: &[Site] = &{
    const CHANGES: &[Site] = wholly_changes::site::ALL;
    let mut all = [Site(""); crate::log::site::ALL.len() + CHANGES.len() + own::ALL.len()];
    let (of_log, rest) = all.split_at_mut(crate::log::site::ALL.len());
    let (of_changes, of_store) = rest.split_at_mut(CHANGES.len());
    of_log.copy_from_slice(crate::log::site::ALL);
    of_changes.copy_from_slice(CHANGES);
    of_store.copy_from_slice(own::ALL);
    all
};

pub use own::*;

mod own {
    wholly_media::sites! {
        /// The store takes its spare space from the host.
        ROOM_SPARE = "room.spare";
        /// The store gives its spare space back to the host.
        ROOM_RELEASE = "room.release";
        /// One of the store's own folders for objects on their way home.
        NAMES_FOLDER = "names.folder";
        /// The store's own folders survive before something is moved there.
        NAMES_FOLDER_SYNC = "names.folder-sync";
        /// A checkpoint creates an object that a group made, empty.
        NAMES_MAKE = "names.make";
        /// An object whose names change gets a place in between.
        NAMES_ANCHOR = "names.anchor";
        /// What hangs on an anchor is durable there before a name of it goes.
        NAMES_BARRIER = "names.barrier";
        /// An object gets its name from a place in between.
        NAMES_PLACE = "names.place";
        /// An object gets one more name.
        NAMES_LINK = "names.link";
        /// A name ends.
        NAMES_UNLINK = "names.unlink";
        /// A directory ends.
        NAMES_RMDIR = "names.rmdir";
        /// What a crashed pass left is removed.
        NAMES_CLEAN = "names.clean";
        /// The file for bytes that are too many for memory.
        SWAP_MAKE = "swap.make";
        /// Bytes of groups that have not committed, and that nobody needs after a crash.
        SWAP_WRITE = "swap.write";
        /// A group makes a file that it writes much to.
        STAGE_MAKE = "stage.make";
        /// A file of the layer becomes such a file.
        STAGE_TAKE = "stage.take";
        /// Bytes of such a file.
        STAGE_WRITE = "stage.write";
        /// Such a file gets a new size.
        STAGE_SIZE = "stage.size";
        /// Blocks of such a file become zeros, or get space.
        STAGE_SPACE = "stage.space";
        /// Such a file is whole before its group commits.
        STAGE_SYNC = "stage.sync";
        /// So is its place.
        STAGE_SYNC_DIR = "stage.sync-dir";
        /// Such a file is removed: nobody can find it.
        STAGE_REMOVE = "stage.remove";
        /// The layer: a folder in which others make what groups adopt.
        LAYER_MAKE = "layer.make";
        /// Something of the layer is removed: no group has adopted it.
        LAYER_REMOVE = "layer.remove";
        /// A group takes something out of the layer.
        ADOPT_TAKE = "adopt.take";
        /// A file that a group has adopted is whole before the group commits.
        ADOPT_SYNC = "adopt.sync";
        /// So is its place.
        ADOPT_SYNC_DIR = "adopt.sync-dir";
        /// So is all that a group has adopted.
        ADOPT_SYNC_ALL = "adopt.sync-all";
        /// A group that has not committed gives back what it has adopted.
        ADOPT_RETURN = "adopt.return";
        /// The folder of shadows.
        SHADOW_FOLDER = "shadow.folder";
        /// That folder survives before a group relies on what is in it.
        SHADOW_FOLDER_SYNC = "shadow.folder-sync";
        /// A group makes a shadow.
        SHADOW_MAKE = "shadow.make";
        /// Bytes of a shadow.
        SHADOW_WRITE = "shadow.write";
        /// A shadow is whole before its group commits.
        SHADOW_SYNC = "shadow.sync";
        /// So is its place.
        SHADOW_SYNC_DIR = "shadow.sync-dir";
        /// Committed bytes in a shadow become those of home.
        SHADOW_HOME = "shadow.home";
        /// A shadow is removed: nothing is in it that is not home, or ever will be.
        SHADOW_REMOVE = "shadow.remove";
        /// The folder of parked groups.
        PARK_FOLDER = "park.folder";
        /// That folder survives before a group is parked in it.
        PARK_FOLDER_SYNC = "park.folder-sync";
        /// A staged file gets a name beside the parked group, as a content file of that.
        PARK_LINK = "park.link";
        /// A content file is whole before the group is parked.
        PARK_CONTENT_SYNC = "park.content-sync";
        /// So are the names of content files.
        PARK_CONTENT_SYNC_DIR = "park.content-sync-dir";
        /// A content file is removed: no parked group names it.
        PARK_CONTENT_REMOVE = "park.content-remove";
        /// A parked group gets its name.
        PARK_RENAME = "park.rename";
        /// A group is parked.
        PARK_SYNC_DIR = "park.sync-dir";
        /// It does not come back.
        PARK_REMOVE_SYNC = "park.remove-sync";
        /// What an open finds parked survives before anybody sees it.
        PARK_SETTLE = "park.settle";
        /// The folder of records of joint commits.
        JOINT_FOLDER = "joint.folder";
        /// That folder survives before a record is in it.
        JOINT_FOLDER_SYNC = "joint.folder-sync";
        /// The file of a record, without its name.
        JOINT_MAKE = "joint.make";
        /// A record.
        JOINT_WRITE = "joint.write";
        /// A record is whole before it gets its name.
        JOINT_SYNC = "joint.sync";
        /// A record gets its name: nothing is decided.
        JOINT_BEGIN = "joint.begin";
        /// It survives before a prepared group refers to it.
        JOINT_BEGIN_SYNC = "joint.begin-sync";
        /// What undoes a group gets its name.
        UNDO_RENAME = "undo.rename";
        /// It survives before its group is committed.
        UNDO_SYNC = "undo.sync";
        /// It is gone: the group is final.
        UNDO_END = "undo.end";
        /// By a file programs know that the folder of undo is one that they may leave out.
        KEPT_TAG = "kept.tag";
        /// What is held leaves its anchor.
        KEPT_PUT_AWAY = "kept.put-away";
        /// What is held is on an anchor again, for a group that gives it a name.
        KEPT_TAKE_OUT = "kept.take-out";
        /// It survives there before that group commits.
        KEPT_TAKE_OUT_SYNC = "kept.take-out-sync";
        /// A prepared group gets its name.
        JOINT_PREPARE = "joint.prepare";
        /// It survives before anything is decided.
        JOINT_PREPARE_SYNC = "joint.prepare-sync";
        /// A record says that it is decided.
        JOINT_DECIDE = "joint.decide";
        /// All participants are committed.
        JOINT_DECIDE_SYNC = "joint.decide-sync";
        /// What an open reads in a record survives before it acts on it.
        JOINT_ASK_SYNC = "joint.ask-sync";
        /// A prepared group that was not decided is removed.
        JOINT_WITHDRAW = "joint.withdraw";
        /// It does not come back.
        JOINT_WITHDRAW_SYNC = "joint.withdraw-sync";
        /// A prepared group becomes a parked one.
        JOINT_RELEASE = "joint.release";
        /// It remains that.
        JOINT_RELEASE_SYNC = "joint.release-sync";
        /// A record, or what was to be one, is removed.
        JOINT_REMOVE = "joint.remove";
        /// A guest becomes a store for good.
        GUEST_KEEP = "guest.keep";
        /// It stays one.
        GUEST_KEEP_SYNC = "guest.keep-sync";
        /// A checkpoint gives an object its owner.
        ATTRIBUTES_OWNER = "attributes.owner";
        /// A checkpoint sets or removes an extended attribute.
        ATTRIBUTES_XATTR = "attributes.xattr";
        /// A checkpoint gives an object its permission bits.
        ATTRIBUTES_MODE = "attributes.mode";
        /// A checkpoint gives an object its times.
        ATTRIBUTES_TIMES = "attributes.times";
        /// A home file is cut to the shortest that it has been since it was last home.
        CHECKPOINT_CUT = "checkpoint.cut";
        /// A home file gets a new size.
        CHECKPOINT_SIZE = "checkpoint.size";
        /// Blocks of a home file are allocated before stores into them.
        CHECKPOINT_ALLOCATE = "checkpoint.allocate";
        /// Blocks of a home file become zeros: a hole, or with their space.
        CHECKPOINT_PUNCH = "checkpoint.punch";
        /// Space is reserved for blocks of a home file.
        CHECKPOINT_RESERVE = "checkpoint.reserve";
        /// Committed bytes go home.
        CHECKPOINT_DATA = "checkpoint.data";
        /// Home bytes stored into mappings are durable.
        CHECKPOINT_FENCE = "checkpoint.fence";
        /// Home files are durable.
        CHECKPOINT_SYNC = "checkpoint.sync";
    }
}
