#include <gtest/gtest.h>

#include "bmojo/base/error.h"
#include "bmojo/model/gguf_config.h"
#include "bmojo/model/gguf_header.h"
#include "tests/counted_heap.h"
#include "tests/model/gguf_file.h"

namespace bmojo::model {
namespace {

using namespace test;

constexpr size_t kMegabyte = 1'000'000;

struct Parsed {
  size_t heap_bytes;
  bool legal;
};

Parsed parse(const std::string& bytes) {
  bool legal = true;
  const size_t heap_bytes = heap_of([&] {
    try {
      parse_gguf_header(std::as_bytes(std::span(bytes)), "file");
    } catch (const base::Error&) {
      legal = false;
    }
  });
  return {heap_bytes, legal};
}

// Headers of about a megabyte each, made of the smallest parts there are.
TEST(GgufHeap, StaysBelowFourTimesTheHeader) {
  GgufFile fields, one, four;
  for (int i = 0; i < 65'536; ++i) fields.fields.push_back(field(fmt::format("{:x}", i), kU8, "1"));
  for (uint64_t i = 0; i < kMegabyte / 40; ++i) {
    one.tensors.push_back(tensor(fmt::format("{:x}", i), {1}, 0, 32 * i));
    four.tensors.push_back(tensor(fmt::format("{:x}", i), {1, 1, 1, 1}, 0, 32 * i));
  }
  one.data_bytes = four.data_bytes = 32 * one.tensors.size();
  for (const auto& file : {fields, one, four}) {
    const auto parsed = parse(file.bytes());
    EXPECT_TRUE(parsed.legal);
    const size_t parts = file.fields.size() + file.tensors.size();
    EXPECT_GT(parsed.heap_bytes, parts * sizeof(GgufField));  // the counter counts
    EXPECT_LT(parsed.heap_bytes, 4 * file.header().size());
  }
}

TEST(GgufHeap, WhatIsOnlyClaimedTakesNothing) {
  const auto counts = "GGUF" + u32(3) + u64(1'000'000) + u64(65'536);
  GgufFile array{.fields = {array_field("k", kString, UINT64_MAX, text("a"))}};
  GgufFile strings{
      .fields = {array_field("k", kString, kMegabyte / 8, std::string(kMegabyte, '\0'))}};
  GgufFile long_text{.fields = {string_field("k", std::string(kMegabyte, 'x'))}};
  for (const auto& bytes : {counts, array.bytes(), strings.bytes(), long_text.bytes()})
    EXPECT_LT(parse(bytes).heap_bytes, 10'000u);
}

// A depth of two milliards is refused before a list of its tensors is made.
TEST(GgufHeap, ADepthIsBoundedByTheTensors) {
  GgufFile file{.fields = {string_field("general.architecture", "llama"),
                           field("llama.embedding_length", kU32, u32(8)),
                           field("llama.feed_forward_length", kU32, u32(8)),
                           field("llama.attention.head_count", kU32, u32(2)),
                           field("llama.block_count", kU32, u32(2'000'000'000))},
                .tensors = {tensor("token_embd.weight", {8, 1}, 0, 0)},
                .data_bytes = 32};
  const auto bytes = file.bytes();
  const auto header = parse_gguf_header(std::as_bytes(std::span(bytes)), "file");
  const size_t heap_bytes =
      heap_of([&] { EXPECT_THROW(model_of_gguf(header, "file"), base::Error); });
  EXPECT_LT(heap_bytes, 10'000u);
}

}  // namespace
}  // namespace bmojo::model
