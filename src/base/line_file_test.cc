#include "base/line_file.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace oncekey {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class LineFileTest : public testing::Test {
 protected:
  LineFileTest() { std::remove(path_.c_str()); }
  ~LineFileTest() override { std::remove(path_.c_str()); }
  Log log_{LogLevel::error};
  const std::string path_ = testing::TempDir() + "oncekey_lines_" + std::to_string(::getpid());
};

TEST_F(LineFileTest, LinesAreThereAfterAFlushAndAtTheEnd) {
  {
    auto file = LineFile::open(path_, log_);
    ASSERT_TRUE(file.ok());
    (*file)->append("one\n");
    (*file)->flush();
    EXPECT_EQ(content_of(path_), "one\n");
    (*file)->append("two\n");
  }
  EXPECT_EQ(content_of(path_), "one\ntwo\n");
  { (*LineFile::open(path_, log_))->append("three\n"); }
  EXPECT_EQ(content_of(path_), "one\ntwo\nthree\n") << "what is there stays";
}

TEST_F(LineFileTest, AfterReopenLinesGoIntoANewFile) {
  auto file = LineFile::open(path_, log_);
  const std::string moved = path_ + ".1";
  (*file)->append("old\n");
  ASSERT_EQ(std::rename(path_.c_str(), moved.c_str()), 0);
  (*file)->reopen();
  (*file)->append("new\n");
  (*file)->flush();
  EXPECT_EQ(content_of(moved), "old\n");
  EXPECT_EQ(content_of(path_), "new\n");
  std::remove(moved.c_str());
}

TEST_F(LineFileTest, AFolderThatIsNotThereIsAFault) {
  const auto file = LineFile::open("/nonexistent/lines", log_);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.fault().message, "/nonexistent/lines: No such file or directory");
  const Status checked = LineFile::check("/nonexistent/lines");
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.fault().message, file.fault().message);
  EXPECT_FALSE(LineFile::check(testing::TempDir()).ok()) << "a folder is not a file";
  EXPECT_FALSE(LineFile::check("/proc/lines").ok()) << "no file can be made there, whatever the folder's mode says";
  EXPECT_TRUE(LineFile::check(path_).ok());
  EXPECT_NE(::access(path_.c_str(), F_OK), 0) << "looking does not make it";
  EXPECT_TRUE(LineFile::check("-").ok());
}

} // namespace
} // namespace oncekey
