#include "child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <stdexcept>

namespace rides {

ChildProcess::ChildProcess(std::vector<std::string> arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  name_ = arguments.at(0);
  arguments.insert(arguments.begin(), "rides");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    // Whatever becomes of the demo, its processes end with it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ends[1], STDOUT_FILENO);
    // The API logs every failure of the processor: noise, where failures are the point.
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
    ::execv("/proc/self/exe", pointers.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  output_ = ends[0];
  if (pid_ < 0) throw std::runtime_error("cannot start rides " + name_);
}

ChildProcess::~ChildProcess() {
  kill();
  ::close(output_);
}

std::string ChildProcess::wait_until_it_listens() {
  const std::string kWords = "listening on ";
  std::string said;
  char byte = 0;
  while (::read(output_, &byte, 1) == 1) {
    if (byte != '\n') {
      said.push_back(byte);
      continue;
    }
    const std::size_t at = said.find(kWords);
    if (at != std::string::npos) return said.substr(at + kWords.size());
    said.clear();
  }
  throw std::runtime_error("rides " + name_ + " ended before it listened: start it by hand to see why");
}

int ChildProcess::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void ChildProcess::kill() { end(SIGKILL); }
void ChildProcess::stop() { end(SIGTERM); }

void ChildProcess::end(int signal) {
  if (pid_ < 0) return;
  ::kill(pid_, signal);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

} // namespace rides
