#include "core/canonical_json.h"

#include "core/json_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace oncekey {
namespace {

std::string canonical(std::string_view json, const std::vector<std::string>& ignore = {}) {
  std::string out;
  return canonical_json(json, ignore, out) ? out : "not json";
}

std::string canonical_of_form(std::string_view form) {
  std::string out;
  return canonical_form(form, out) ? out : "not a form";
}

TEST(CanonicalJson, TheFormIsWhatItsHeaderSays) {
  EXPECT_EQ(canonical(R"( { "b" : [1.50, true, false, null], "a" : "x\ny" } )"), "{\"1:a\"3:x\ny\"1:b[#1.50;tfz]}");
}

TEST(CanonicalJson, SpellingsOfTheSameValueAreEqual) {
  const auto same = [](std::string_view a, std::string_view b) {
    EXPECT_EQ(canonical(a), canonical(b)) << a << " and " << b;
    EXPECT_NE(canonical(a), "not json") << a;
  };
  same(R"({"a":1,"b":2})", R"({"b":2,"a":1})");
  same(R"({"a":{"c":1,"d":[{"x":1,"y":2}]},"b":2})", "{ \"b\":2,\n\"a\":{\"d\":[ {\"y\":2,\"x\":1} ],\"c\":1}}");
  same(R"({"\u0061":"\u00e9\/"})", "{\"a\":\"\xc3\xa9/\"}");
  same(R"("\ud83d\ude00")", "\"\xf0\x9f\x98\x80\"");
  same(R"({"b":1,"a":1,"b":2})", R"({"a":1,"b":1,"b":2})");
  same("12", " 12\n");
  same("{}", "{ }");
}

TEST(CanonicalJson, DifferentValuesDiffer) {
  const std::vector<std::string> different = {
      "1", "1.0", "1e0", "-0", "0", "\"1\"", "true", "\"true\"", "null", "\"\"", "[]", "{}", "[[]]", "[{}]", "[1,2]",
      "[2,1]", "[12]", "[1,[2]]", R"({"a":1})", R"({"a":"1"})", R"({"a":1,"a":2})", R"({"a":2,"a":1})", R"({"a":2})",
      R"({"a":null})", R"({"a":{}})", R"({"a":{"b":1},"c":2})", R"({"a":{"b":1,"c":2}})", R"({"":1})", R"(["a","b"])",
      R"(["ab"])", R"(["a\"1:b"])", R"(["a\u0000"])", R"(["a"])", "9007199254740992", "9007199254740993",
      "123456789012345678901234567890", "123456789012345678901234567891", "1.10", "1.1", "1e400",
      // One character and its decomposed form are two names to a byte-wise reader.
      "\"\xc3\xa9\"", "\"e\xcc\x81\""};
  std::set<std::string> seen;
  for (const std::string& json : different) {
    const std::string form = canonical(json);
    EXPECT_NE(form, "not json") << json;
    EXPECT_TRUE(seen.insert(form).second) << json << " is taken for another: " << form;
  }
}

TEST(CanonicalJson, MembersOfOneNameKeepTheirOrderHoweverManyThereAre) {
  std::string sent = "{\"z\":0";
  std::string sorted = "{";
  for (int i = 0; i < 100; ++i) {
    sent += ",\"a\":" + std::to_string(i);
    sorted += "\"a\":" + std::to_string(i) + ",";
  }
  EXPECT_EQ(canonical(sent + "}"), canonical(sorted + "\"z\":0}"));
}

TEST(CanonicalJson, WhatIsNotJsonIsNotTouched) {
  for (const std::string json : {"", " ", "{", "{}{}", "[1,]", "{\"a\":1,}", "{a:1}", "nul", "01", "+1", ".5", "NaN",
                                 "'a'", "\"\x01\"", "\"\xff\"", R"("\ud800")", "// c\n1", "\xef\xbb\xbf{}", "{} x"}) {
    EXPECT_EQ(canonical(json), "not json") << json;
  }
}

TEST(CanonicalJson, DepthIsBounded) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NE(canonical(nested(kJsonDepthMax)), "not json");
  EXPECT_EQ(canonical(nested(kJsonDepthMax + 1)), "not json");
}

TEST(CanonicalJson, TheNumberOfValuesIsBounded) {
  std::string many = "[";
  for (std::size_t i = 0; i + 2 < kJsonValuesMax; ++i) many += "1,";
  EXPECT_NE(canonical(many + "1]"), "not json");
  EXPECT_EQ(canonical(many + "1,1]"), "not json");
}

TEST(CanonicalJson, IgnoredPlacesDoNotCount) {
  const std::vector<std::string> ignore = {"/metadata", "/items/1/note", "/tags/0", "/a~1b/~0"};
  const auto with = [&](std::string_view json) { return canonical(json, ignore); };
  EXPECT_EQ(with(R"({"amount":1,"metadata":{"trace":[1,{"x":2}]}})"), with(R"({"amount":1})"));
  EXPECT_EQ(with(R"({"metadata":1,"amount":1,"metadata":2})"), with(R"({"amount":1})"));
  EXPECT_NE(with(R"({"amount":1,"metadata":1})"), with(R"({"amount":2,"metadata":1})"));
  EXPECT_NE(with(R"({"x":{"metadata":1}})"), with(R"({"x":{"metadata":2}})")) << "a pointer starts at the root";
  EXPECT_EQ(with(R"({"items":[{"note":1},{"note":2,"id":1}]})"), with(R"({"items":[{"note":1},{"id":1,"note":3}]})"));
  EXPECT_NE(with(R"({"items":[{"note":1},{"note":2}]})"), with(R"({"items":[{"note":9},{"note":2}]})"));
  EXPECT_EQ(with(R"({"tags":["a","b"]})"), with(R"({"tags":["z","b"]})"));
  EXPECT_NE(with(R"({"tags":["a","b"]})"), with(R"({"tags":["a","c"]})")) << "the second keeps its index";
  EXPECT_EQ(with(R"({"a/b":{"~":1}})"), with(R"({"a/b":{"~":2}})"));
}

// A random document; `mutate` counts down to the scalar that is changed.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  std::string value(std::mt19937_64* order, int& mutate, int depth = 0) {
    const std::uint64_t kind = depth > 4 ? 3 + pick(3) : pick(6);
    if (kind < 2) return object(order, mutate, depth);
    if (kind == 2) {
      std::string text = "[";
      for (std::uint64_t i = pick(4); i > 0; --i) text += value(order, mutate, depth + 1) + (i > 1 ? "," : "");
      return text + "]";
    }
    const bool change = mutate-- == 0;
    const std::uint64_t number = pick(1000);
    if (kind == 3) return std::to_string(number) + (change ? "1" : "");
    if (kind == 4) return "\"s" + std::to_string(number) + (change ? "!\"" : "\"");
    return change ? "null" : number % 2 ? "true" : "false";
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }

  std::string object(std::mt19937_64* order, int& mutate, int depth) {
    std::vector<std::string> members;
    for (std::uint64_t i = pick(6); i > 0; --i) {
      members.push_back("\"n" + std::to_string(i * 7 % 5) + std::string(i, 'x') +
                        "\": " + value(order, mutate, depth + 1));
    }
    if (order) std::shuffle(members.begin(), members.end(), *order);
    std::string text = "{";
    for (std::size_t i = 0; i < members.size(); ++i) text += (i ? "," : "") + members[i];
    return text + "}";
  }

  std::mt19937_64 random_;
};

TEST(CanonicalJson, AnyOrderOfMembersIsEqualAndAnyChangedValueDiffers) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    int unchanged = -1;
    const std::string sent = Maker(seed).value(nullptr, unchanged);
    const int scalars = -1 - unchanged;
    std::mt19937_64 order(seed);
    int still_unchanged = -1;
    const std::string shuffled = Maker(seed).value(&order, still_unchanged);
    ASSERT_NE(canonical(sent), "not json") << sent;
    ASSERT_EQ(canonical(sent), canonical(shuffled)) << sent << "\n" << shuffled;
    for (int at = 0; at < std::min(scalars, 5); ++at) {
      int mutate = at;
      const std::string changed = Maker(seed).value(&order, mutate);
      ASSERT_NE(canonical(sent), canonical(changed)) << sent << "\n" << changed;
    }
  }
}

TEST(CanonicalForm, TheOrderOfDifferentFieldsDoesNotCount) {
  EXPECT_EQ(canonical_of_form("b=2&a=1"), canonical_of_form("a=1&b=2"));
  EXPECT_EQ(canonical_of_form("a%5Bx%5D=1"), canonical_of_form("a[x]=%31"));
  EXPECT_EQ(canonical_of_form("a=b+c"), canonical_of_form("a=b%20c"));
  EXPECT_EQ(canonical_of_form("&a=1&&b=2&"), canonical_of_form("a=1&b=2"));
  EXPECT_EQ(canonical_of_form("b=3&a=1&a=2"), canonical_of_form("a=1&b=3&a=2"));
  EXPECT_EQ(canonical_of_form("b=3&a[][x]=1&a[][y]=2"), canonical_of_form("a[][x]=1&b=3&a[][y]=2"));
  EXPECT_NE(canonical_of_form("a[][x]=1&a[][y]=2&a[][x]=3"), canonical_of_form("a[][x]=1&a[][x]=3&a[][y]=2"));
}

TEST(CanonicalForm, DifferentFormsDiffer) {
  std::set<std::string> seen;
  for (const std::string form :
       {"a=1", "a=2", "a=1&a=2", "a=2&a=1", "a", "a=", "a=1&b=", "a=1b", "=1", "a=%261", "a=&1", "a=b%2Bc", "a=b+c"}) {
    EXPECT_TRUE(seen.insert(canonical_of_form(form)).second) << form;
  }
}

TEST(CanonicalForm, AnEscapeThatIsNoneMakesItNoForm) {
  for (const std::string form : {"a=%", "a=%4", "a=%zz", "a=%4z", "a=%z4", "%=1", "a=1&b=%-1"}) {
    EXPECT_EQ(canonical_of_form(form), "not a form") << form;
  }
}

} // namespace
} // namespace oncekey
