#include "bmojo/infer/packed_folder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/kernels/cpu.h"
#include "tests/infer/support.h"
#include "tests/temp_folder.h"

// A packed checkpoint gives the bits of the plain one it was made of; whatever is not as the engine
// would have laid it out is refused.

namespace bmojo::infer {
namespace {

using test::contains, test::difference, test::Draw, test::message_of, test::read, test::TempFolder;

struct Packed {
  Packed(const Draw& draw, std::optional<WeightType> wanted)
      : type(write_packed_folder(draw.folder.path(), folder / "packed", wanted, kernels::serial_for,
                                 {})),
        tensors(folder / "packed") {}

  TempFolder folder;
  WeightType type;
  model::TensorFolder tensors;
};

TEST(PackedFolder, GivesTheBitsOfThePlainOne) {
  for (uint64_t seed = 3000; seed < 3050; ++seed) {
    const Draw draw(seed);
    const model::TensorFolder plain(draw.folder.path());
    for (const auto type : {WeightType::f32, WeightType::bf16}) {
      const Packed packed(draw, type);
      const Model ours(packed.tensors, draw.config, {}, 1);
      EXPECT_EQ(ours.type(), type);
      EXPECT_EQ(difference(read(ours, draw.ids, draw.parts),
                           read(Model(plain, draw.config, type, 1), draw.ids, draw.parts)),
                "")
          << kernels::name_of(type) << ", " << draw.text();
    }
    const Packed own(draw, {});
    EXPECT_EQ(own.type, draw.model(1).type()) << draw.text();
    EXPECT_EQ(model::digest_of(own.tensors), model::digest_of(plain)) << draw.text();
  }
}

// One file serves all: it is written and read under every instruction set.
TEST(PackedFolder, DoesNotDependOnTheInstructionSet) {
  for (uint64_t seed = 3100; seed < 3110; ++seed) {
    const Draw draw(seed);
    const Packed best(draw, WeightType::bf16);
    const auto want = read(Model(best.tensors, draw.config, {}, 1), draw.ids);
    for (const auto& target : kernels::simd_targets()) {
      kernels::use_target(target);
      const Packed again(draw, WeightType::bf16);
      EXPECT_EQ(model::digest_of(again.tensors.files()[0]->data()),
                model::digest_of(best.tensors.files()[0]->data()))
          << target << ", " << draw.text();
      EXPECT_EQ(difference(read(Model(best.tensors, draw.config, {}, 1), draw.ids), want), "")
          << target << ", " << draw.text();
      kernels::use_target("");
    }
  }
}

TEST(PackedFolder, AllocatesNothingForWeights) {
  for (uint64_t seed = 3200; seed < 3210; ++seed) {
    const Draw draw(seed);
    const Packed packed(draw, WeightType::f32);
    EXPECT_EQ(bytes_to_allocate(packed.tensors, draw.config, {}), 0);
    // What a plain one allocates is what the packed file holds, without the embedding's rows and up
    // to 60 bytes behind each array.
    const model::TensorFolder plain(draw.folder.path());
    const auto bytes = bytes_to_allocate(plain, draw.config, WeightType::f32);
    const auto [file, info] = packed.tensors.entries().at("embedding.weight");
    const auto arrays = static_cast<int64_t>(file->data().size() - (info->end - info->begin));
    const auto count = static_cast<int64_t>(packed.tensors.entries().size()) - 1;
    EXPECT_GE(bytes, arrays);
    EXPECT_LE(bytes, arrays + 60 * count);
  }
}

// Rewrites the file of a packed folder with one thing changed; says how it is refused.
class Changed {
 public:
  Changed() : draw_(3000), packed_(draw_, WeightType::f32) {
    const auto& file = *packed_.tensors.files()[0];
    metadata = file.metadata();
    metadata.erase(std::string(model::kDigestName));
    tensors = {file.tensors().begin(), file.tensors().end()};
    std::ranges::sort(tensors, {}, &model::TensorInfo::begin);
  }

  std::string refusal(std::optional<WeightType> wanted = {}) const {
    const auto folder = packed_.folder / "changed";
    std::filesystem::create_directories(folder);
    model::SafetensorsWriter writer(folder / model::kWeightsFile, tensors, metadata);
    for (const auto& tensor : tensors) {
      const auto bytes =
          static_cast<size_t>(model::num_elements(tensor.shape)) * model::size_of(tensor.dtype);
      writer.write(std::vector<std::byte>(bytes));
    }
    writer.commit();
    return message_of<base::Error>(
        [&] { Weights(model::TensorFolder(folder), draw_.config, wanted, kernels::serial_for); });
  }
  model::TensorInfo& tensor(std::string_view name) {
    return *std::ranges::find(tensors, name, &model::TensorInfo::name);
  }

  std::map<std::string, std::string> metadata;
  std::vector<model::TensorInfo> tensors;

 private:
  Draw draw_;
  Packed packed_;
};

TEST(PackedFolder, AnotherLayoutIsRefusedByName) {
  EXPECT_EQ(Changed().refusal(), "");
  EXPECT_EQ(Changed().refusal(WeightType::f32), "");
  const auto with = [](const char* name, const char* value) {
    Changed changed;
    changed.metadata[name] = value;
    return changed.refusal();
  };
  EXPECT_TRUE(
      contains(with("bmojo.layout", "tiles"), "bmojo.layout must be panels, got 'tiles'; "));
  EXPECT_TRUE(
      contains(with("bmojo.layout_version", "2"), "bmojo.layout_version must be 1, got '2'"));
  EXPECT_TRUE(contains(with("bmojo.panel_rows", "16"), "bmojo.panel_rows must be 32, got '16'"));
  EXPECT_TRUE(contains(with("bmojo.weight_type", "int8"), "must be f32 or bf16, got 'int8'"));
  EXPECT_TRUE(contains(with("bmojo.weight_type", "bf16"), "must be BF16 ["));
  EXPECT_TRUE(contains(Changed().refusal(WeightType::bf16), "--dtype: must be f32 as the weights"));
}

TEST(PackedFolder, TensorsThatDoNotFitAreRefused) {
  {
    Changed changed;
    changed.tensor("norm").shape[0] += 1;
    EXPECT_TRUE(contains(changed.refusal(), "packed tensor 'norm' must be F32 ["));
  }
  {
    Changed changed;
    changed.tensor("head").name = "tail";
    EXPECT_TRUE(contains(changed.refusal(), "packed tensor 'head' is missing"));
  }
  {
    Changed changed;
    changed.tensors.push_back({"more", model::Dtype::f32, {1}});
    EXPECT_TRUE(contains(changed.refusal(), "packed tensors of its config, got"));
  }
  {
    Changed changed;
    changed.tensors.insert(changed.tensors.begin(), {"more", model::Dtype::f32, {1}});
    EXPECT_TRUE(contains(changed.refusal(), "must lie on a border of 64 bytes"));
  }
}

TEST(PackedFolder, IsNoPlainCheckpoint) {
  const Draw draw(3000);
  const Packed packed(draw, {});
  EXPECT_TRUE(
      contains(message_of<base::Error>([&] { model::Checkpoint(packed.folder / "packed"); }),
               "must be a plain checkpoint, got one that is packed for the engine"));
  EXPECT_TRUE(contains(message_of<base::Error>([&] {
                         write_packed_folder(packed.folder / "packed", packed.folder / "again", {},
                                             kernels::serial_for, {});
                       }),
                       "must be a plain checkpoint"));
}

}  // namespace
}  // namespace bmojo::infer
