// Descriptor: owns a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace oncekey {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  bool open() const { return number_ >= 0; }
  int number() const { return number_; }
  void close() {
    if (open()) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

} // namespace oncekey
