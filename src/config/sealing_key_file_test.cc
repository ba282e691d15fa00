#include "config/sealing_key_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace oncekey {
namespace {

using testing::HasSubstr;

class SealingKeyFileTest : public ::testing::Test {
 protected:
  SealingKeyFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-keys-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/keys";
    write("7 " + std::string(64, 'a') + "\n", 0600);
  }
  ~SealingKeyFileTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text, mode_t mode) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  std::string refusal() const {
    const auto keys = load_sealing_keys(path_);
    return keys ? "" : keys.fault().message;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SealingKeyFileTest, IsReadWhereItIsTheOwnersAlone) {
  for (const mode_t mode : {0600, 0400}) {
    ::chmod(path_.c_str(), mode);
    const auto keys = load_sealing_keys(path_);
    ASSERT_TRUE(keys) << keys.fault().message;
    EXPECT_EQ((*keys)->sealing_id(), 7u);
  }
}

TEST_F(SealingKeyFileTest, IsRefusedWhereOthersMayReadIt) {
  for (const mode_t mode : {0640, 0604, 0620}) {
    ::chmod(path_.c_str(), mode);
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("(mode 0{:o}): run chmod 600", mode)));
  }
}

TEST_F(SealingKeyFileTest, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(::chown(path_.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(), HasSubstr("belongs to another user"));
}

TEST_F(SealingKeyFileTest, AMissingOneSaysHowToMakeIt) {
  std::filesystem::remove(path_);
  EXPECT_THAT(refusal(), HasSubstr("no such file. Make one with: (umask 077; echo \"1 $(openssl rand -hex 32)\" > "));
  path_ = folder_;
  EXPECT_THAT(refusal(), HasSubstr("is not a file"));
}

TEST_F(SealingKeyFileTest, AMistakeIsNamedByItsLine) {
  write("# keys\n7 abc\n", 0600);
  EXPECT_THAT(refusal(), HasSubstr("keys:2: expected \"ID KEY\""));
}

} // namespace
} // namespace oncekey
