#include "store/rocksdb/fences.h"

#include "store/common/fences.h"
#include "store/rocksdb/rocksdb_fault.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace oncekey {
namespace {

const rocksdb::Slice kFenceKey("fence");

} // namespace

Status Fences::load(rocksdb::DB& db, Time now) {
  std::string bytes;
  const rocksdb::Status read = db.Get({}, kFenceKey, &bytes);
  if (!read.ok() && !read.IsNotFound()) return fault_of(read, "the store's counter of fences could not be read");
  if (read.ok()) {
    if (bytes.size() != sizeof bound_)
      return corrupt("the store is damaged: its counter of fences does not have 8 bytes");
    std::memcpy(&bound_, bytes.data(), sizeof bound_);
  }
  next_ = std::max(bound_, least_fence(now));
  return ok_status();
}

rocksdb::Status Fences::take(rocksdb::WriteBatch& batch) {
  if (next_ >= bound_) {
    bound_ = next_ + kFenceBlock;
    char bytes[sizeof bound_];
    std::memcpy(bytes, &bound_, sizeof bound_);
    if (rocksdb::Status added = batch.Put(kFenceKey, rocksdb::Slice(bytes, sizeof bytes)); !added.ok()) return added;
  }
  ++next_;
  return rocksdb::Status::OK();
}

} // namespace oncekey
