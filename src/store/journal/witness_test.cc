#include "store/journal/witness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using ::testing::HasSubstr;

TEST(Witness, WhatItSaysComesBackAndAnyChangeIsNoticed) {
  const std::string bytes = encode_witness({"0123456789abcdef", 18'446'744'073'709'551'615u});
  const std::optional<StoreAt> at = decode_witness(bytes);
  ASSERT_TRUE(at);
  EXPECT_EQ(at->id, "0123456789abcdef");
  EXPECT_EQ(at->sequence, 18'446'744'073'709'551'615u);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_FALSE(decode_witness(changed)) << i;
    EXPECT_FALSE(decode_witness(bytes.substr(0, i))) << i;
  }
}

TEST(Witness, AStoreThatHasComeAsFarOrFurtherMissesNothing) {
  EXPECT_FALSE(what_is_missing({"a", 7}, {"a", 7}));
  EXPECT_FALSE(what_is_missing({"a", 7}, {"a", 8}));
}

TEST(Witness, AnOlderStoreAndAnotherStoreAreTold) {
  EXPECT_THAT(what_is_missing({"a", 7}, {"a", 6}).value_or(""), HasSubstr("number 6 and was number 7"));
  EXPECT_THAT(what_is_missing({"a", 7}, {"b", 9}).value_or(""), HasSubstr("store b and was store a"));
}

TEST(Witness, ItStandsBesideTheFolderHoweverThatIsSpelled) {
  EXPECT_EQ(Witness("/x/data").path(), "/x/data.witness");
  EXPECT_EQ(Witness("/x/data/").path(), "/x/data.witness");
  EXPECT_EQ(Witness("/x/y/../data//").path(), "/x/data.witness");
}

} // namespace
} // namespace oncekey
