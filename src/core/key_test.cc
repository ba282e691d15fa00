#include "core/key.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

std::string string_of(std::string_view field) { return parse_structured_string(field).value_or("<none>"); }

TEST(StructuredString, StringsThatAre) {
  EXPECT_EQ(string_of(R"("foo bar")"), "foo bar");
  EXPECT_EQ(string_of(R"("")"), "");
  EXPECT_EQ(string_of(R"("   ")"), "   ");
  EXPECT_EQ(string_of(R"("foo \"bar\" \\ baz")"), R"(foo "bar" \ baz)");
  EXPECT_EQ(string_of(R"(  "padded"  )"), "padded");
  EXPECT_EQ(string_of("\"" + std::string(1000, 'x') + "\""), std::string(1000, 'x'));
}

TEST(StructuredString, StringsThatAreNot) {
  for (const std::string_view field :
       {R"("foo)", R"(foo")", R"(")",      R"("foo\,")", R"("foo\")",     R"("foo\a")", R"('foo')",
        R"(foo)",  R"(1)",    R"(:Zm9v:)", R"("a" "b")", R"("a", "b")",   R"("a"b)",    "",
        "  ",      "\"\t\"",  "\"a\nb\"",  "\"\x7f\"",   "\"f\xc3\xbc\"", "\t\"a\""}) {
    EXPECT_EQ(string_of(field), "<none>") << field;
  }
  EXPECT_EQ(string_of(std::string_view("\"\0\"", 3)), "<none>");
}

TEST(StructuredString, EveryByteIsEitherItselfOrRefused) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string inner(1, static_cast<char>(byte));
    const bool good = byte >= 0x20 && byte <= 0x7e && byte != '"' && byte != '\\';
    EXPECT_EQ(string_of("\"" + inner + "\""), good ? inner : "<none>") << byte;
    const bool escapable = byte == '"' || byte == '\\';
    EXPECT_EQ(string_of("\"\\" + inner + "\""), escapable ? inner : "<none>") << byte;
  }
}

TEST(StructuredString, ParametersAreCheckedAndDropped) {
  for (const std::string_view parameters :
       {";a", ";a=1", "; a=1;b=2", ";a=-1.125", ";a=\"x;y\"", ";a=*tok/en:x", ";a=?1", ";a=:Zm9v:", ";a=@1659578233",
        ";a=%\"f%c3%bc\"", ";*a-b_c.d=1", ";a=999999999999999"}) {
    EXPECT_EQ(string_of("\"k\"" + std::string(parameters)), "k") << parameters;
  }
  for (const std::string_view parameters :
       {";", ";A=1", ";1=1", ";a=", ";a=\"x", ";a=?2", ";a=:Zm9v", ";a=1.", ";a=1.1234", ";a=1234567890123.1",
        ";a=1000000000000000", ";a=--1", ";a=@1.5", ";a=%\"%C3\"", ";a=%\"x", ";a=(1)", " ;a", ";a ;b", ",a"}) {
    EXPECT_EQ(string_of("\"k\"" + std::string(parameters)), "<none>") << parameters;
  }
}

TEST(Key, TheReasonSaysWhatIsWrongAndNotWhatWasSent) {
  const auto why = [](std::string_view value) {
    const ParsedKey parsed = parse_key_header(KeySyntax::raw, false, value);
    const auto* bad = std::get_if<BadKey>(&parsed);
    return bad ? bad->why : "good";
  };
  EXPECT_EQ(why(""), "the key is empty");
  EXPECT_EQ(why(std::string(300, 'x')), "the key has 300 characters, 255 are allowed");
  EXPECT_EQ(why("sec ret"), "the key holds something other than visible ASCII characters");
  EXPECT_EQ(why("!~"), "good");
}

TEST(Key, EveryVisibleCharacterIsAllowedAndNoOther) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string key = "a" + std::string(1, static_cast<char>(byte)) + "b";
    const bool good = std::holds_alternative<std::string>(parse_plain_key(key));
    EXPECT_EQ(good, byte > 0x20 && byte < 0x7f) << byte;
  }
}

TEST(Key, OneKeyHasTheSameTextQuotedAndBareWhereTheSyntaxSaysSo) {
  for (const KeySyntax syntax : {KeySyntax::visible_ascii, KeySyntax::structured_string}) {
    EXPECT_EQ(std::get<std::string>(parse_key_header(syntax, false, "\"k-1\"")),
              std::get<std::string>(parse_key_header(syntax, false, "k-1")));
  }
}

} // namespace
} // namespace oncekey
