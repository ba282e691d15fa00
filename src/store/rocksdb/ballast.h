// Ballast: disk space kept by a file without content, for the day on which the disk is full.
//
// Opening a store writes a few files. A disk that others have filled would keep the gateway down until a person makes
// room. So the store sets a little aside while there is plenty, in PATH.ballast beside its folder, and a start that
// finds the disk full deletes it first. So does a running store without room for the endings of what was begun.
#pragma once

#include <cstdint>
#include <string>

namespace oncekey {

class Ballast {
 public:
  // More than opening needs, and nothing on a disk of today. It is made only where four times as much is free.
  static constexpr std::uint64_t kBytes = std::uint64_t{32} << 20;

  explicit Ballast(std::string folder);

  // True if there was some.
  bool drop() const;
  // Makes it again where it is missing and there is plenty of room. A failure is of no consequence.
  void restore() const;

 private:
  std::string path_;
  std::string folder_;
};

} // namespace oncekey
