#include "base/private_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace oncekey {
namespace {

using ::testing::HasSubstr;

class PrivateFiles : public ::testing::Test {
 protected:
  PrivateFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-private-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    before_ = ::umask(0); // nothing here may depend on it
  }
  ~PrivateFiles() override {
    ::umask(before_);
    std::filesystem::remove_all(root_);
  }
  static mode_t mode_of(const std::string& path) {
    struct stat file {};
    return ::lstat(path.c_str(), &file) == 0 ? file.st_mode & 07777 : 0;
  }

  std::string root_;
  mode_t before_ = 0;
};

TEST_F(PrivateFiles, FoldersAndFilesAreMadeForTheOwnerAlone) {
  ASSERT_TRUE(make_private_folder(root_ + "/a/b/"));
  EXPECT_EQ(mode_of(root_ + "/a"), 0700u);
  EXPECT_EQ(mode_of(root_ + "/a/b"), 0700u);
  ASSERT_TRUE(replace_private_file(root_ + "/a/file", "one", Sync::yes));
  ASSERT_TRUE(replace_private_file(root_ + "/a/file", "two", Sync::no));
  EXPECT_EQ(mode_of(root_ + "/a/file"), 0600u);
  EXPECT_EQ(**read_file_if_there(root_ + "/a/file", 10), "two");
}

TEST_F(PrivateFiles, TheFirstOfTwoMakersWins) {
  EXPECT_EQ(*make_private_file_once(root_ + "/token", "first"), "first");
  EXPECT_EQ(*make_private_file_once(root_ + "/token", "second"), "first");
  EXPECT_EQ(mode_of(root_ + "/token"), 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 1) << "nothing is left lying about";
}

TEST_F(PrivateFiles, AFolderAndItsFilesAreNarrowedAndLinksAreLeftAlone) {
  const std::string outside = root_ + "/outside";
  const std::string folder = root_ + "/folder";
  std::ofstream(outside) << "x";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/file") << "x";
  std::filesystem::create_symlink(outside, folder + "/link");
  ASSERT_TRUE(make_folder_private(folder));
  EXPECT_EQ(mode_of(folder), 0700u);
  EXPECT_EQ(mode_of(folder + "/file"), 0600u);
  EXPECT_EQ(mode_of(outside), 0666u);
}

TEST_F(PrivateFiles, ALinkThatAnotherUserHasPutInTheWayIsNotWrittenThrough) {
  const std::string victim = root_ + "/victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, root_ + "/file.new");
  ASSERT_TRUE(replace_private_file(root_ + "/file", "new", Sync::no));
  EXPECT_EQ(**read_file_if_there(victim, 100), "precious");
}

TEST_F(PrivateFiles, WhatIsNotThereIsNothingAndWhatIsTooLongIsAFault) {
  EXPECT_FALSE(read_file_if_there(root_ + "/none", 10)->has_value());
  std::ofstream(root_ + "/long") << "0123456789x";
  EXPECT_THAT(read_file_if_there(root_ + "/long", 10).fault().message, HasSubstr("longer than 10 bytes"));
}

} // namespace
} // namespace oncekey
