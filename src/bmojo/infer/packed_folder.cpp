#include "bmojo/infer/packed_folder.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/printable.h"
#include "bmojo/infer/weights.h"
#include "bmojo/model/tokenizer_files.h"

namespace bmojo::infer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kVersionName = "bmojo.layout_version";
constexpr const char* kPanelRowsName = "bmojo.panel_rows";
constexpr const char* kTypeName = "bmojo.weight_type";

// What a file of this program's layout says, in this order.
std::vector<std::pair<const char*, std::string>> own_layout() {
  return {{model::kLayoutName, "panels"},
          {kVersionName, "1"},
          {kPanelRowsName, fmt::to_string(kernels::kPanelRows)}};
}

// Notes what the engine asks for, and gives nothing.
class Listing : public WeightSource {
 public:
  enum Kind { panels, plain, decay };
  struct Item {
    std::string name;
    Kind kind;
    Parts parts;
  };

  PackedMatrix matrix(const std::string& name, const Parts& parts) override {
    add(name, panels, parts);
    return {};
  }
  const float* floats(const std::string& name, const Tensor& x) override {
    return add(name, plain, {x});
  }
  const float* decays(const std::string& name, const Tensor& log) override {
    return add(name, decay, {log});
  }

  std::vector<Item> items;

 private:
  const float* add(const std::string& name, Kind kind, const Parts& parts) {
    if (rows_of(parts) > 0) items.push_back({name, kind, parts});
    return nullptr;
  }
};

// Panels first: each is a multiple of 64 bytes long, so that all lie on such a border. Then fp32,
// and last the embedding, which may be of a narrower type.
std::vector<Listing::Item> items_of(const model::Config& config, const ModelTensors& tensors) {
  Listing listing;
  for (int64_t i = 0; i < config.num_layers; ++i) layer_from(listing, config, tensors, i);
  norm_and_head_from(listing, tensors);
  std::ranges::stable_partition(listing.items,
                                [](const auto& item) { return item.kind == Listing::panels; });
  return std::move(listing.items);
}

model::TensorInfo info_of(const Listing::Item& item, WeightType type) {
  if (item.kind == Listing::decay)
    return {item.name, model::Dtype::f32, decays_shape(item.parts[0])};
  if (item.kind == Listing::plain) return {item.name, model::Dtype::f32, item.parts[0].shape};
  return {item.name, dtype_of(type), panel_shape(rows_of(item.parts), width_of(item.parts))};
}

// Writes in pieces that begin and end on borders of large pages. The system then keeps the file in
// such pages, and a program that maps it takes hundreds of page faults in place of thousands.
class LargeWrites {
 public:
  explicit LargeWrites(model::SafetensorsWriter& file)
      : file_(file), room_(kPage - file.data_offset() % kPage) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), room_ - held_.size()));
      held_.insert(held_.end(), part.begin(), part.end());
      bytes = bytes.subspan(part.size());
      if (held_.size() == room_) flush();
    }
  }
  void flush() {
    file_.write(held_);
    held_.clear();
    room_ = kPage;
  }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  model::SafetensorsWriter& file_;
  size_t room_;
  std::vector<std::byte> held_;
};

class PackedWriter {
 public:
  PackedWriter(LargeWrites& file, WeightType type, const kernels::ParallelFor& parallel)
      : file_(file), type_(type), parallel_(parallel) {}

  void write(const Listing::Item& item) {
    if (item.kind == Listing::panels) return write_panels(item.parts);
    const auto& tensor = item.parts[0];
    const auto values = item.kind == Listing::decay ? decays_of(tensor) : widened(tensor);
    file_.write(std::as_bytes(std::span(values)));
  }

 private:
  void write_panels(const Parts& parts) {
    const PackedMatrix matrix{rows_of(parts), width_of(parts), type_, nullptr};
    const auto bytes = kernels::packed_bytes(matrix.N, matrix.K, type_);
    const Aligned memory(bytes);
    pack(parts, matrix, memory.data(), parallel_);
    file_.write({static_cast<const std::byte*>(memory.data()), static_cast<size_t>(bytes)});
  }

  LargeWrites& file_;
  WeightType type_;
  const kernels::ParallelFor& parallel_;
};

}  // namespace

WeightType write_packed_folder(const fs::path& folder, const fs::path& out,
                               std::optional<WeightType> wanted,
                               const kernels::ParallelFor& parallel,
                               const std::function<void(int64_t, int64_t)>& progress) {
  const model::Checkpoint checkpoint(folder);
  const auto& config = checkpoint.config;
  const ModelTensors tensors(checkpoint.tensors, config);
  const auto type = wanted.value_or(tensors.own_type());
  const auto items = items_of(config, tensors);
  const auto embedding =
      checkpoint.tensors.at("embedding.weight", {config.vocab_size, config.hidden_size});
  std::vector<model::TensorInfo> infos;
  for (const auto& item : items) infos.push_back(info_of(item, type));
  infos.push_back({embedding.info->name, embedding.info->dtype, embedding.info->shape});
  std::map<std::string, std::string> metadata{
      {kTypeName, std::string(kernels::name_of(type))},
      {model::kPackedFromName, model::digest_of(checkpoint.tensors)}};
  for (const auto& [name, value] : own_layout()) metadata[name] = value;

  base::write_folder(out, [&](const fs::path& inside) {
    model::SafetensorsWriter file(inside / model::kWeightsFile, infos, metadata);
    LargeWrites pieces(file);
    PackedWriter writer(pieces, type, parallel);
    const auto total = std::ssize(items) + 1;
    for (int64_t i = 0; i < std::ssize(items); ++i) {
      writer.write(items[static_cast<size_t>(i)]);
      if (progress) progress(i + 1, total);
    }
    pieces.write(embedding.file->bytes(*embedding.info));
    pieces.flush();
    file.commit();
    if (progress) progress(total, total);
    model::save_config(config, inside);
    model::copy_tokenizer_files(folder, inside);
  });
  return type;
}

WeightType packed_type(const model::TensorFolder& folder, std::optional<WeightType> wanted) {
  const auto subject = base::shown(folder.folder());
  base::require(folder.files().size() == 1, "{}: a packed checkpoint must have one file, got {}",
                subject, folder.files().size());
  const auto& metadata = folder.files().front()->metadata();
  const auto value = [&](const char* name) {
    const auto it = metadata.find(name);
    return it == metadata.end() ? std::string() : it->second;
  };
  for (const auto& [name, own] : own_layout())
    base::require(value(name) == own,
                  "{}: {} must be {}, got {}; pack the weights with this program", subject, name,
                  own, base::in_quotes(value(name)));
  const auto type = kernels::weight_type_of(value(kTypeName));
  base::require(type.has_value(), "{}: {} must be f32 or bf16, got {}", subject, kTypeName,
                base::in_quotes(value(kTypeName)));
  base::require(
      !wanted || wanted == type,
      "--dtype: must be {} as the weights of {} are packed, got {}; use the folder that they "
      "were made from",
      kernels::name_of(*type), subject, kernels::name_of(*wanted));
  return *type;
}

}  // namespace bmojo::infer
