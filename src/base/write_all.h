// write_all: the two steps below everything that writes files itself.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// Writes everything, however many calls that takes. 0, or the errno of the call that failed.
int write_all(int fd, std::string_view bytes);

// Makes the name of a new file as durable as its content: a name survives a power cut once its folder is synced.
bool sync_folder_of(const std::string& path);

} // namespace oncekey
