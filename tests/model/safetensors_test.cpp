#include "bmojo/model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "bmojo/base/error.h"
#include "bmojo/base/input.h"
#include "bmojo/base/json.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

using test::contains;
using test::message_of;
using test::TempFolder;

using Metadata = std::map<std::string, std::string>;

TensorInfo tensor(std::string name, Dtype dtype, Shape shape) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

std::vector<std::byte> counting(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  const auto path = folder / "x.safetensors";
  const auto data = counting(24 + 6 + 0 + 1);
  const Metadata metadata = {{"format", "pt"}, {"note", "a \"b\"\n\\ é"}};
  SafetensorsWriter writer(path,
                           {tensor("z", Dtype::f32, {2, 3}), tensor("a\t\"é", Dtype::bf16, {3}),
                            tensor("empty", Dtype::f64, {0, 5}), tensor("m", Dtype::boolean, {})},
                           metadata);
  writer.write(std::span(data).first(7));  // pieces need not match tensors
  writer.write(std::span(data).subspan(7));
  EXPECT_EQ(folder.num_entries(), 1u);
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  EXPECT_EQ(folder.num_entries(), 1u);

  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[0].name, "a\t\"é");  // sorted
  const TensorInfo* z = file.find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->dtype, Dtype::f32);
  EXPECT_EQ(z->shape, (Shape{2, 3}));
  EXPECT_EQ(z->begin, 0u);
  EXPECT_EQ(file.find("a\t\"é")->begin, 24u);  // the data keep the order given
  EXPECT_EQ(file.find("empty")->shape, (Shape{0, 5}));
  EXPECT_TRUE(file.bytes(*file.find("empty")).empty());
  EXPECT_EQ(file.bytes(*file.find("m")).size(), 1u);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
  EXPECT_TRUE(std::ranges::equal(file.data(), data));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("note"), metadata.at("note"));
  EXPECT_EQ(file.mapping()->path(), path);
}

TEST(Safetensors, DataStartOnAMultipleOf64) {
  const TempFolder folder;
  for (size_t length = 0; length < 70; ++length) {
    const auto path = folder / "x";
    SafetensorsWriter writer(path, {tensor(std::string(length, 'n'), Dtype::u8, {1})}, {}, false);
    writer.write(counting(1));
    writer.commit();
    const SafetensorsFile file(path);
    EXPECT_EQ((file.data().data() - file.mapping()->bytes().data()) % 64, 0) << length;
    EXPECT_LT(file.mapping()->bytes().size(), 8 + length + 64 + 64 + 1) << length;
  }
}

TEST(Safetensors, HeaderIsAsTheFormatWritesIt) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::i16, {2})}, {{"b", "2"}, {"a", "1"}},
                           false);
  writer.write(counting(4));
  writer.commit();
  const std::string expected =
      R"({"__metadata__":{"a":"1","b":"2"},"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})";
  EXPECT_EQ(base::read_text(folder / "x").substr(8, expected.size()), expected);
}

TEST(Safetensors, NoTensorsAtAll) {
  const TempFolder folder;
  SafetensorsWriter(folder / "x", {}, {}, false).commit();
  const SafetensorsFile file(folder / "x");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_TRUE(file.data().empty());
}

TEST(Safetensors, MemoryIsWritableAndTheFileIsNot) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::u8, {3})}, {});
  writer.write(counting(3));
  writer.commit();
  const std::string before = base::read_text(folder / "x");
  {
    const SafetensorsFile file(folder / "x");
    file.bytes(file.tensors()[0])[1] = std::byte{77};
    EXPECT_EQ(file.data()[1], std::byte{77});
  }
  EXPECT_EQ(base::read_text(folder / "x"), before);
}

TEST(Safetensors, TheMappingOutlivesTheFile) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::u8, {3})}, {});
  writer.write(counting(3));
  writer.commit();
  auto file = std::make_unique<SafetensorsFile>(folder / "x");
  const auto mapping = file->mapping();
  const auto bytes = file->data();
  file.reset();
  EXPECT_EQ(bytes[2], std::byte{2});
}

TEST(Safetensors, ForeignTensorIsRefused) {
  const TempFolder folder;
  SafetensorsWriter(folder / "x", {}, {}).commit();
  const SafetensorsFile file(folder / "x");
  EXPECT_TRUE(contains(message_of<base::Error>([&] {
                         file.bytes(
                             {.name = "w", .dtype = Dtype::u8, .shape = {4}, .begin = 0, .end = 4});
                       }),
                       "tensor 'w' must be one of this file's"));
}

TEST(Digest, KnownValues) {
  EXPECT_EQ(digest_of({}), "xxh3-128:99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_of(bytes_of("abc")), "xxh3-128:06b05ab6733a618578af5f94892f3950");
}

TEST(Digest, ReportsProgressAndIgnoresPieces) {
  const auto data = counting((size_t{16} << 20) + 5);
  std::vector<size_t> seen;
  const auto digest = digest_of(data, [&](size_t done) { seen.push_back(done); });
  EXPECT_EQ(seen, (std::vector<size_t>{size_t{16} << 20, data.size()}));
  EXPECT_EQ(digest, digest_of(data));
  EXPECT_NE(digest, digest_of(std::span(data).first(data.size() - 1)));
}

TEST(Digest, WrittenFileCarriesThatOfItsData) {
  const TempFolder folder;
  const auto data = counting(1000);
  SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::u8, {1000})},
                           {{"a", "0"}, {"bmojo.digest", "stale"}, {"z", "1"}});
  for (size_t i = 0; i < data.size(); i += 77) {
    writer.write(std::span(data).subspan(i, std::min<size_t>(77, data.size() - i)));
  }
  writer.commit();
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata().at("bmojo.digest"), digest_of(file.data()));
  EXPECT_EQ(file.metadata().at("bmojo.digest"), digest_of(data));
  EXPECT_EQ(file.metadata().at("a"), "0");
  EXPECT_EQ(file.metadata().at("z"), "1");
}

TEST(Digest, LeftOutOnRequest) {
  const TempFolder folder;
  SafetensorsWriter(folder / "x", {}, {{"format", "pt"}}, false).commit();
  EXPECT_EQ(SafetensorsFile(folder / "x").metadata(), (Metadata{{"format", "pt"}}));
}

TEST(SafetensorsWriter, CountsItsBytes) {
  const TempFolder folder;
  {
    SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::f32, {2})}, {});
    writer.write(counting(7));
    EXPECT_TRUE(contains(message_of<base::Error>([&] { writer.commit(); }),
                         "data must be 8 bytes for its tensors, got 7"));
    EXPECT_TRUE(contains(message_of<base::Error>([&] { writer.write(counting(2)); }),
                         "data must be 8 bytes for its tensors, got more"));
  }
  EXPECT_EQ(folder.num_entries(), 0u);
}

TEST(SafetensorsWriter, KeepsTheOldFileUntilCommit) {
  const TempFolder folder;
  folder.write("x", "old");
  {
    SafetensorsWriter writer(folder / "x", {tensor("w", Dtype::u8, {2})}, {});
    writer.write(counting(2));
  }
  EXPECT_EQ(base::read_text(folder / "x"), "old");
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(SafetensorsWriter, RefusesWhatItCouldNotReadBack) {
  const TempFolder folder;
  const auto refusal = [&](std::vector<TensorInfo> tensors, Metadata metadata = {}) {
    return message_of<base::Error>(
        [&] { SafetensorsWriter writer(folder / "x", std::move(tensors), std::move(metadata)); });
  };
  EXPECT_TRUE(contains(refusal({tensor("w", Dtype::u8, {2}), tensor("w", Dtype::u8, {2})}),
                       "tensor 'w' must appear once"));
  EXPECT_TRUE(contains(refusal({tensor("__metadata__", Dtype::u8, {})}), "__metadata__"));
  EXPECT_TRUE(contains(refusal({tensor("\xff", Dtype::u8, {})}), "must be UTF-8, got '"));
  EXPECT_TRUE(contains(refusal({}, {{"a", "\xff"}}), "must be UTF-8, got '"));
  EXPECT_TRUE(contains(refusal({tensor("w", Dtype::u8, Shape(9, 1))}),
                       "tensor 'w': shape must hold at most 8 numbers"));
  EXPECT_TRUE(contains(refusal({tensor("w", Dtype::u8, {-1})}), "sizes >= 0 that fit a file"));
  EXPECT_TRUE(contains(refusal({tensor("w", Dtype::f64, {int64_t{1} << 62})}), "fit a file"));
  EXPECT_TRUE(contains(refusal({tensor(std::string(70'000, 'n'), Dtype::u8, {})}),
                       "at most 65536 bytes in a string"));
  EXPECT_EQ(folder.num_entries(), 0u);
}

}  // namespace
}  // namespace bmojo::model
