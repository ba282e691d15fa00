#include "base/enum_name.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace oncekey {
namespace {

enum class Weather : std::uint8_t { fair = 1, thick_fog = 3 };
struct Ship {
  enum class Course { north, south_west };
};

TEST(EnumName, IsTheEnumeratorsSpelling) {
  EXPECT_EQ(enum_name(Weather::fair), "fair");
  EXPECT_EQ(enum_name(Weather::thick_fog), "thick_fog");
  EXPECT_EQ(enum_name(Ship::Course::south_west), "south_west");
  enum class Local { calm = 2 };
  EXPECT_EQ(enum_name(Local::calm), "calm");
  EXPECT_EQ(enum_name(static_cast<Local>(3)), "unknown");
}

TEST(EnumName, OfAValueWithoutAnEnumeratorIsUnknown) {
  EXPECT_EQ(enum_name(static_cast<Weather>(0)), "unknown");
  EXPECT_EQ(enum_name(static_cast<Weather>(2)), "unknown");
  EXPECT_EQ(enum_name(static_cast<Weather>(200)), "unknown");
}

TEST(EnumNamed, IsTheEnumeratorOfThatName) {
  EXPECT_EQ(enum_named<Weather>("thick_fog"), Weather::thick_fog);
  EXPECT_EQ(enum_named<Weather>("fog"), std::nullopt);
  EXPECT_EQ(enum_named<Weather>("unknown"), std::nullopt);
  EXPECT_EQ(enum_named<Weather>(""), std::nullopt);
}

TEST(EachEnumerator, ComesOnce) {
  std::string names;
  each_enumerator<Weather>([&](Weather weather) { names.append(enum_name(weather)).append(" "); });
  EXPECT_EQ(names, "fair thick_fog ");
}

} // namespace
} // namespace oncekey
