// DecisionTable: a table of expectations as lines of text that a person can read and argue about.
//
// A line is one cell: the names of its coordinates, then what is expected there. `#` starts a comment. The test walks
// the whole cross product: a cell without a line fails, a cell with two lines fails, and so does a line that is no
// cell.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace oncekey {

class DecisionTable {
 public:
  using Cell = std::vector<std::string>;

  // `coordinates` columns name the cell, the rest of the line is what is expected.
  DecisionTable(const std::string& name, std::size_t coordinates) : name_(name) {
    std::ifstream file(std::string(ONCEKEY_SOURCE_DIR) + "/tests/tables/" + name);
    EXPECT_TRUE(file.is_open()) << name << " cannot be opened";
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      std::istringstream words(line);
      Cell cell;
      std::string expected;
      for (std::string word; words >> word && word != "#";) {
        if (cell.size() < coordinates) {
          cell.push_back(word);
        } else {
          expected += (expected.empty() ? "" : " ") + word;
        }
      }
      if (cell.empty()) continue;
      EXPECT_FALSE(expected.empty()) << name << ":" << number << " expects nothing";
      EXPECT_TRUE(lines_.emplace(cell, expected).second) << name << ":" << number << " is a second line for " << line;
    }
  }

  void expect(const Cell& cell, const std::string& actual) {
    walked_.insert(cell);
    const auto line = lines_.find(cell);
    if (line == lines_.end()) {
      ADD_FAILURE() << name_ << " has no line for " << text(cell) << " (the code says " << actual << ")";
    } else {
      EXPECT_EQ(line->second, actual) << name_ << ": " << text(cell);
    }
  }

  void expect_every_line_was_a_cell() {
    for (const auto& [cell, expected] : lines_) {
      EXPECT_TRUE(walked_.contains(cell)) << name_ << ": no such cell: " << text(cell);
    }
  }

 private:
  static std::string text(const Cell& cell) {
    std::string joined;
    for (const std::string& word : cell) joined += (joined.empty() ? "" : " ") + word;
    return joined;
  }

  std::string name_;
  std::map<Cell, std::string> lines_;
  std::set<Cell> walked_;
};

} // namespace oncekey
