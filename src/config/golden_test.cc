// Wrong configurations and what is said about them, in one file that reads from top to bottom:
// tests/golden/config_errors.golden. With ONCEKEY_WRITE_GOLDEN=1 the answers are written anew, to be read and
// committed.
#include "config/load.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace oncekey {
namespace {

constexpr const char* kFolder = ONCEKEY_SOURCE_DIR "/tests/golden";
constexpr const char* kGolden = ONCEKEY_SOURCE_DIR "/tests/golden/config_errors.golden";
constexpr std::string_view kTitle = "## ";
constexpr std::string_view kAnswer = "=>";

struct Case {
  std::string title;
  std::string text;
  std::string answer;
};

struct Golden {
  std::string opening; // what stands above the first case
  std::vector<Case> cases;
};

Golden read_golden() {
  Golden golden;
  std::ifstream file(kGolden);
  std::string line;
  enum { opening, text, answer } part = opening;
  while (std::getline(file, line)) {
    if (line.starts_with(kTitle)) {
      golden.cases.push_back({line.substr(kTitle.size()), {}, {}});
      part = text;
    } else if (part == text && line == kAnswer) {
      part = answer;
    } else if (part == opening) {
      golden.opening += line + "\n";
    } else if (part == text) {
      golden.cases.back().text += line + "\n";
    } else if (!line.empty()) {
      golden.cases.back().answer += line + "\n";
    }
  }
  return golden;
}

std::string answer_to(const Case& one) {
  const ReadConfig read = read_config_text(one.text, "oncekey.toml", NamedFiles::looked_at);
  std::string answer;
  for (const Finding& finding : read.findings) answer += shown(finding, read.file_name) + "\n";
  return answer;
}

TEST(Golden, WrongConfigurationsAreAnsweredAsTheFileSays) {
  Golden golden = read_golden();
  ASSERT_GT(golden.cases.size(), 50u);
  // Relative paths in the cases mean the golden files.
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(::chdir(kFolder), 0);
  for (Case& one : golden.cases) {
    const std::string answer = answer_to(one);
    EXPECT_FALSE(answer.empty()) << "was not refused: " << one.title << "\n" << one.text;
    if (std::getenv("ONCEKEY_WRITE_GOLDEN") == nullptr) {
      EXPECT_EQ(answer, one.answer) << one.title;
    }
    one.answer = answer;
  }
  ASSERT_EQ(::chdir(before), 0);
  if (std::getenv("ONCEKEY_WRITE_GOLDEN") == nullptr) return;
  std::ofstream file(kGolden);
  file << golden.opening;
  for (std::size_t i = 0; i < golden.cases.size(); ++i) {
    const Case& one = golden.cases[i];
    file << (i == 0 ? "" : "\n") << kTitle << one.title << "\n" << one.text << kAnswer << "\n" << one.answer;
  }
}

} // namespace
} // namespace oncekey
