#include "phases/notes.h"

#include <gtest/gtest.h>

namespace oncekey::phases {
namespace {

TEST(Notes, AnyBytesComeBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const Notes notes = {{"plain", "a-b.c_9"}, {"", "no name"}, {"empty", ""}, {all, all}};
  const auto decoded = decode_notes(encode_notes(notes));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, notes);
}

TEST(Notes, AreReadable) { EXPECT_EQ(encode_notes({{"ride", "7"}, {"to", "a b"}}), "ride=7&to=a%20b"); }

TEST(Notes, DamageIsNoticed) {
  for (const char* const bytes : {"a", "a=%", "a=%4", "a=%zz", "a=b c", "&a=b"}) {
    EXPECT_FALSE(decode_notes(bytes).ok()) << bytes;
  }
  EXPECT_TRUE(decode_notes("")->empty());
}

} // namespace
} // namespace oncekey::phases
