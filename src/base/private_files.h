// private_files: files and folders that only their owner may read, and the steps below everything that writes files.
//
// What the process keeps on disk holds clients' answers, keys and tokens. Any other user of the machine could read it
// under the usual umask, so everything is made with mode 0600 (folders 0700), and what is there already is narrowed.
#pragma once

#include <oncekey/result.h>

#include <cstddef>

namespace oncekey {

// Makes the folder and its missing parents, each with mode 0700, durably. One that exists is left as it is.
Status make_private_folder(const std::string& path);

// Takes group's and others' access to `path` away. A fault if that is needed and the process may not do it, because
// another user owns the file. Symbolic links are left alone.
Status make_private(const std::string& path);
// The same for a folder and the files directly in it.
Status make_folder_private(const std::string& path);

// Replaces the file by one with this content and mode 0600. A crash leaves the old content or the new one. One process
// at a time.
enum class Sync { yes, no };
Status replace_private_file(const std::string& path, std::string_view content, Sync sync);

// The same if the file has the content `expected` (empty: or does not exist), durably; false if it has another. Of
// several processes that try at once one succeeds: they hold a lock on the folder meanwhile. What root writes belongs
// to the owner of the folder.
Result<bool> exchange_private_file(const std::string& path, std::string_view expected, std::string_view next,
                                   std::size_t bytes_max);

// Makes the file, durably and with mode 0600, unless it exists. Returns the content that the file has afterwards: of
// several processes that try at once, all get the same.
Result<std::string> make_private_file_once(const std::string& path, std::string_view content);

// The content, or nothing if there is no such file. A file longer than `bytes_max` is a fault.
Result<std::optional<std::string>> read_file_if_there(const std::string& path, std::size_t bytes_max);

// Writes everything, however many calls that takes. 0, or the errno of the call that failed.
int write_all(int fd, std::string_view bytes);

// Makes the name of a new file as durable as its content: a name survives a power cut once its folder is synced.
bool sync_folder_of(const std::string& path);

// Why no file can be made in this folder, which exists: it is the kernel's, or this user may not.
std::optional<std::string> why_no_new_file_in(const std::string& folder);

// A core dump holds the bodies, keys and tokens that were in memory when the process crashed, and goes to a place that
// others may read. Forbidden, whatever limits the shell has set, before the first secret is read; allowed, up to the
// hard limit that the process was started with. The same switch keeps other processes of the same user from reading the
// memory with ptrace.
enum class CoreDumps { forbidden, allowed };
void set_core_dumps(CoreDumps dumps);

} // namespace oncekey
