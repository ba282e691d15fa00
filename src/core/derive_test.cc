#include <oncekey/derive.h>

#include <gtest/gtest.h>

#include <set>

namespace oncekey {
namespace {

// Expected values: Python's hashlib and uuid, as docs/CLIENT.md shows.
TEST(Derive, TestVectorsForOtherLanguages) {
  EXPECT_EQ(derive("8e03978e-40d5-43e8-bc93-6894a57f9324", "charge"), "acce7059-8f7b-8b8f-b214-bc5952341319");
  EXPECT_EQ(derive("8e03978e-40d5-43e8-bc93-6894a57f9324", "refund"), "90cf5998-638c-8b23-9f3c-37481e6bdb4a");
  EXPECT_EQ(derive("order-17", "charge"), "ba725942-8f17-877a-83d4-51a6dc8ae9c5");
  EXPECT_EQ(derive("order-1", "7charge"), "91ac4168-4b0c-8229-9488-66d24e42a7b1");
  EXPECT_EQ(derive("order-17", "charge/1"), "adfe4ca9-09fd-82ab-88ed-420142d3ddf8");
  EXPECT_EQ(derive("order-17", ""), "d800b324-ceb3-89e0-9b9c-a945a50b5a08");
  EXPECT_EQ(derive("", "order-17"), "2e758a7d-a5a7-85b7-ab39-bb842ee52e8f");
  EXPECT_EQ(derive("k",
                   "\xc3\x9c"
                   "berweisung"),
            "ddc7ca2c-874a-8baf-ac7d-9218a842234b");
  EXPECT_EQ(derive(std::string(255, 'k'), "receipt"), "1101dd73-520f-866d-bba7-4e2906c30c48");
}

TEST(Derive, OfADerivedKeyIsAnotherKey) {
  EXPECT_EQ(derive(derive("order-17", "charge"), "refund"), "2b1637e2-74d0-87eb-a161-622e2978613e");
}

TEST(Derive, KeyAndLabelAreNotJoined) {
  std::set<std::string> seen;
  for (const auto& [key, label] : {std::pair<std::string_view, std::string_view>{"abc", ""},
                                   {"ab", "c"},
                                   {"a", "bc"},
                                   {"", "abc"},
                                   {"a", "b\0c"},
                                   {"abc", "abc"}}) {
    EXPECT_TRUE(seen.insert(derive(key, label)).second) << key << " " << label;
  }
}

} // namespace
} // namespace oncekey
