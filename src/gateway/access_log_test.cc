#include "gateway/access_log.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(TraceId, IsReadFromAWholeTraceparentAlone) {
  const std::string id = "0af7651916cd43dd8448eb211c80319c";
  EXPECT_EQ(trace_id_of("00-" + id + "-b7ad6b7169203331-01"), id);
  EXPECT_EQ(trace_id_of("01-" + id + "-b7ad6b7169203331-01-more"), id);
  for (const std::string& bad :
       {std::string(), std::string("00-") + id, "00-" + id + "-b7ad6b7169203331-0",
        "00-" + id + "-b7ad6b7169203331-01x", "00_" + id + "-b7ad6b7169203331-01",
        "00-" + id.substr(1) + "g-b7ad6b7169203331-01", "00-" + id.substr(1) + "A-b7ad6b7169203331-01"}) {
    EXPECT_EQ(trace_id_of(bad), "") << bad;
  }
}

TEST(ShownMethod, AMadeUpMethodIsNotShown) {
  EXPECT_EQ(shown_method("PATCH"), "PATCH");
  EXPECT_EQ(shown_method("M4242424242424242"), "other");
  EXPECT_EQ(shown_method("post"), "other");
}

} // namespace
} // namespace oncekey
