// backup: a copy of an embedded store as of one moment, and the way back.
//
// A backup is a folder with the files of a store, and one more that is written last:
//
//   backup   oncekey backup 1
//            store ID
//            sequence NUMBER              of the newest write in it
//            made MILLISECONDS            since 1970, by the wall clock
//            in_progress NUMBER           keys that were not answered yet
//            file BYTES CHECKSUM NAME     once for each file; CHECKSUM is XXH3-64 of its content
//            end CHECKSUM                 of all lines before
//
// It is made as FOLDER.partial and gets its name when everything is durable: a backup that was cut off does not look
// whole. A folder with the file `backup` is a backup, however it came to where it is: a store that is opened on it
// refuses claims until an operator accepts the loss (loss.cc), because what was claimed after it was made is not in it.
// The first process that opens it changes its files: the checksums count until then.
#pragma once

#include "core/store_tools.h"

#include <oncekey/result.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

inline constexpr std::string_view kBackupFile = "backup";
// In a store's folder, while a backup is made of it: hard links and copies of what belongs to one moment.
inline constexpr std::string_view kSnapshotFolder = "snapshot";

struct BackupFile {
  std::string name; // "meta", "log/000000.segment"
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

struct BackupNote {
  std::string store;
  std::uint64_t sequence = 0;
  Time made{};
  std::uint64_t in_progress = 0;
  std::vector<BackupFile> files{};

  BackupMade as_made(const std::string& folder) const;
};

std::string encode_backup_note(const BackupNote& note);
// `corrupt` for one that is not whole, `newer_format` for one of a later version.
Result<BackupNote> decode_backup_note(std::string_view text, const std::string& path);
// Of that folder; nothing if it is no backup.
Result<std::optional<BackupNote>> read_backup_note(const std::string& folder);

// Whether a backup or a store can be made there: nothing has that name, nor that of its partial copy.
Status check_new_folder(const std::string& folder);

// The files of a store's folder that belong to a backup. Tokens, locks and logs of the process do not.
Result<std::vector<std::string>> files_of_store(const std::string& folder);

// Copies those files of `from` to a new backup; files that never change are linked where the disk allows that.
// `note` says of what moment they are; its files are filled in.
Result<BackupMade> make_backup(const std::string& from, const std::vector<std::string>& names, BackupNote note,
                               const std::string& to, const TellProgress& tell);

// The same for a store that no process has open.
Result<BackupMade> back_up_journal(const std::string& folder, const std::string& to, const TellProgress& tell);

// A new store out of a backup. Every file is compared with its checksum on the way.
Result<BackupMade> restore_journal(const std::string& backup, const std::string& folder, const TellProgress& tell);

} // namespace oncekey
