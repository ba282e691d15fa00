// Another `rides` process of the demo: started, read from, and ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rides {

class ChildProcess {
 public:
  // This program with these arguments. Ended in any case when the object is.
  explicit ChildProcess(std::vector<std::string> arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The address it says it listens on: "http://127.0.0.1:PORT". Throws std::runtime_error if it ends before.
  std::string wait_until_it_listens();
  // Its exit code, when it has ended by itself.
  int wait();
  // kill -9.
  void kill();
  // Asks it to end, and waits.
  void stop();

 private:
  void end(int signal);

  std::string name_;
  int pid_ = -1;
  int output_ = -1;
};

} // namespace rides
