#include <gtest/gtest.h>

#include <cstring>

#include "bmojo/base/error.h"
#include "bmojo/model/safetensors.h"
#include "tests/counted_heap.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

using test::TempFolder;

constexpr size_t kMegabyte = 1'000'000;

struct Opened {
  size_t header_bytes, heap_bytes;
  bool legal;
};

Opened open(const std::string& header, size_t data_bytes) {
  const TempFolder folder;
  uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  const auto path = folder.write("x", bytes + header + std::string(data_bytes, 'd'));
  bool legal = true;
  const size_t heap_bytes = test::heap_of([&] {
    try {
      SafetensorsFile file(path);
    } catch (const base::Error&) {
      legal = false;
    }
  });
  return {header.size(), heap_bytes, legal};
}

std::string tiny_tensors(size_t header_bytes, std::string_view shape, size_t& num_tensors) {
  std::string text = "{";
  for (num_tensors = 0; text.size() < header_bytes; ++num_tensors) {
    text += fmt::format(R"("{}":{{"dtype":"U8","shape":{},"data_offsets":[{},{}]}},)", num_tensors,
                        shape, num_tensors, num_tensors + 1);
  }
  text.back() = '}';
  return text;
}

TEST(SafetensorsHeap, ThousandsOfTinyTensors) {
  for (const char* shape : {"[]", "[1]", "[1,1,1,1,1,1,1,1]"}) {
    size_t num_tensors = 0;
    const std::string header = tiny_tensors(kMegabyte, shape, num_tensors);
    const Opened opened = open(header, num_tensors);
    EXPECT_TRUE(opened.legal);
    EXPECT_GT(num_tensors, 10'000u);
    EXPECT_GT(opened.heap_bytes, num_tensors * sizeof(TensorInfo));  // the counter counts
    EXPECT_LT(opened.heap_bytes, 4 * opened.header_bytes) << shape;
  }
}

// Headers made to cost more than they weigh, each of about a megabyte.
TEST(SafetensorsHeap, HostileHeaders) {
  std::string metadata = R"({"__metadata__":{)";
  for (int i = 0; metadata.size() < kMegabyte; ++i) metadata += fmt::format(R"("{:x}":"",)", i);
  std::string long_names = "{";
  for (size_t i = 0; long_names.size() < kMegabyte; ++i) {
    long_names +=
        fmt::format(R"("{:n>65000}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  }
  long_names.back() = '}';
  const std::string many(kMegabyte, 'n'), digits(kMegabyte, '1'), lines(kMegabyte, '\n');
  const std::vector<std::pair<std::string, bool>> headers = {
      {metadata + "}}", false},
      {long_names, true},
      {"{\"" + many + "\":{}}", false},
      {"{\"__metadata__\":{\"a\":\"" + many + "\"}}", false},
      {"{\"w\":{\"shape\":[" + digits + "]}}", false},
      {"{" + lines + "}", false},
      {"{\"w\":" + std::string(kMegabyte, '['), false},
      {"{\"w\":{\"shape\":[" + std::string(kMegabyte, ','), false},
      {"{" + std::string(kMegabyte, '{'), false},
      {"{}" + std::string(kMegabyte, ' '), true},
  };
  for (const auto& [header, legal] : headers) {
    const Opened opened = open(header, 0);
    EXPECT_EQ(opened.legal, legal) << header.substr(0, 40);
    EXPECT_LT(opened.heap_bytes, 4 * opened.header_bytes) << header.substr(0, 40);
  }
}

}  // namespace
}  // namespace bmojo::model
