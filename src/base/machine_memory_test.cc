#include "base/machine_memory.h"

#include "base/process_usage.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(MachineMemory, WhatIsFreeIsBelowTheLimitAndThisProcessToo) {
  ASSERT_TRUE(memory_limit());
  ASSERT_TRUE(available_memory());
  EXPECT_LT(*available_memory(), *memory_limit());
  EXPECT_LT(process_usage().resident_bytes, *memory_limit());
}

} // namespace
} // namespace oncekey
