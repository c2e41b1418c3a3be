#include "bmojo/model/hugging_face.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "bmojo/base/error.h"
#include "bmojo/base/file.h"
#include "bmojo/base/input.h"
#include "bmojo/base/json.h"
#include "bmojo/base/printable.h"
#include "bmojo/model/checkpoint.h"
#include "bmojo/model/hugging_face_config.h"
#include "bmojo/model/tensors.h"
#include "bmojo/model/tokenizer_files.h"

namespace bmojo::model {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBlock = size_t{1} << 20;  // elements converted or bytes · 8 copied at a time

// One tensor to write, and where its values stand.
struct Transfer {
  TensorInfo target;
  TensorFolder::Entry source;
};

class Copier {
 public:
  Copier(SafetensorsWriter& writer, std::string_view verb, int64_t total,
         const CopyProgress& progress)
      : writer_(writer), verb_(verb), total_(total), progress_(progress) {}

  void copy(const Transfer& transfer) {
    const auto bytes = transfer.source.file->bytes(*transfer.source.info);
    transfer.target.dtype == transfer.source.info->dtype ? copy_bytes(bytes)
                                                         : convert(transfer, bytes);
  }

 private:
  void advance(size_t bytes) {
    done_ += static_cast<int64_t>(bytes);
    if (progress_) progress_(done_, total_);
  }

  void copy_bytes(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(8 * kBlock, bytes.size()));
      writer_.write(part);
      advance(part.size());
      bytes = bytes.subspan(part.size());
    }
  }

  void convert(const Transfer& transfer, std::span<const std::byte> bytes) {
    const Dtype from = transfer.source.info->dtype, to = transfer.target.dtype;
    values_.resize(kBlock);
    stored_.resize(kBlock * size_of(to));
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(kBlock * size_of(from), bytes.size()));
      const std::span values(values_.data(), part.size() / size_of(from));
      const std::span stored(stored_.data(), values.size() * size_of(to));
      to_float(part, from, values);
      if (to == Dtype::f16)
        require_below_f16_limit(values,
                                fmt::format("{}: tensor '{}'", verb_, transfer.target.name));
      from_float(values, to, stored);
      writer_.write(stored);
      advance(part.size());
      bytes = bytes.subspan(part.size());
    }
  }

  SafetensorsWriter& writer_;
  std::string_view verb_;  // for messages
  int64_t done_ = 0, total_;
  const CopyProgress& progress_;
  std::vector<float> values_;
  std::vector<std::byte> stored_;
};

void write_weights(const fs::path& path, std::vector<Transfer> transfers, std::string_view verb,
                   const CopyProgress& progress) {
  // Wide types first, as the format's own writer does: every tensor is then aligned to its type.
  std::ranges::stable_sort(transfers, std::ranges::greater(),
                           [](const Transfer& transfer) { return size_of(transfer.target.dtype); });
  std::vector<TensorInfo> targets;
  int64_t total = 0;
  for (const auto& transfer : transfers) {
    targets.push_back(transfer.target);
    total += static_cast<int64_t>(transfer.source.info->end - transfer.source.info->begin);
  }
  SafetensorsWriter writer(path, targets, {{"format", "pt"}});
  Copier copier(writer, verb, total, progress);
  for (const auto& transfer : transfers) copier.copy(transfer);
  writer.commit();
}

// A file may repeat the embedding as the output of a tied model. It must be the embedding, or
// dropping it would change the model.
void check_repeated_head(const TensorFolder& tensors, const TensorFolder::Entry& embedding,
                         const std::string& name) {
  const auto head = tensors.at(name, embedding.info->shape);
  const auto a = head.file->bytes(*head.info), b = embedding.file->bytes(*embedding.info);
  base::require(
      head.info->dtype == embedding.info->dtype && std::ranges::equal(a, b),
      "{}: tensor '{}' must equal the embedding in a model with tie_word_embeddings, got other "
      "values",
      base::printable(tensors.folder().string()), name);
}

std::string source_name(const TensorFolder& tensors, Family family, const std::string& native) {
  auto name = hugging_face_name(family, native);
  const std::string older = "backbone.embedding.weight";
  const bool is_older = name == "backbone.embeddings.weight" && !tensors.entries().contains(name) &&
                        tensors.entries().contains(older);
  return is_older ? older : name;
}

std::vector<Transfer> match(const ForeignModel& model, const TensorFolder& tensors,
                            std::optional<Dtype> dtype) {
  std::vector<Transfer> transfers;
  std::set<std::string> used;
  for (const auto& spec : tensor_specs(model.config)) {
    const auto name = source_name(tensors, model.family, spec.name);
    const auto source = tensors.at(name, spec.shape);
    transfers.push_back({{spec.name, dtype.value_or(source.info->dtype), spec.shape}, source});
    used.insert(name);
  }
  const auto head = hugging_face_name(model.family, "head.weight");
  if (model.config.tied_embeddings && tensors.entries().contains(head)) {
    check_repeated_head(tensors, transfers.front().source, head);
    used.insert(head);
  }
  for (const auto& [name, entry] : tensors.entries())
    base::require(used.contains(name), "{}: tensor '{}' is not part of a {} model with this config",
                  base::printable(tensors.folder().string()), name, model_type_of(model.family));
  return transfers;
}

}  // namespace

Imported import_hugging_face(const fs::path& source, const fs::path& out,
                             std::optional<Dtype> dtype, const CopyProgress& progress) {
  const auto shown = base::printable(source.string());
  base::require(fs::is_directory(source),
                "{}: must be a folder with {} and safetensors, or a GGUF file, got {}", shown,
                kConfigFile, fs::exists(source) ? "another file" : "nothing");
  const auto config_path = source / kConfigFile;
  const auto subject = base::printable(config_path.string());
  const auto model =
      from_hugging_face(base::parse_json(base::read_text(config_path), subject), subject);
  const TensorFolder tensors(source);
  const auto transfers = match(model, tensors, dtype);
  base::write_folder(out, [&](const fs::path& inside) {
    write_weights(inside / kWeightsFile, transfers, "import", progress);
    save_config(model.config, inside);
    copy_tokenizer_files(source, inside);
  });
  return {std::string(model_type_of(model.family)), model.config};
}

std::string export_checkpoint(const fs::path& folder, const fs::path& out, Dtype dtype,
                              const CopyProgress& progress) {
  const Checkpoint checkpoint(folder);
  const auto family = family_of(checkpoint.config);
  std::vector<Transfer> transfers;
  for (const auto& spec : tensor_specs(checkpoint.config)) {
    const auto name = family ? hugging_face_name(*family, spec.name) : spec.name;
    transfers.push_back({{name, dtype, spec.shape}, checkpoint.tensors.at(spec.name, spec.shape)});
  }
  base::write_folder(out, [&](const fs::path& inside) {
    write_weights(inside / kWeightsFile, transfers, "export", progress);
    if (family) {
      base::AtomicFile file(inside / kConfigFile);
      file.write(to_hugging_face(checkpoint.config, *family, dtype).dump(2) + "\n");
      file.commit();
    } else {
      save_config(checkpoint.config, inside);
    }
    copy_tokenizer_files(folder, inside);
  });
  return family ? std::string(model_type_of(*family)) : "bmojo";
}

}  // namespace bmojo::model
