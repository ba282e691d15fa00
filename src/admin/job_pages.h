// JobPages: the pages about jobs: lists, one job with its attempts, and what operators do with one.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/audit_trail.h"
#include "admin/page.h"
#include "core/job_store.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"

namespace oncekey {

// Why a job was not changed, for people.
std::string_view why_not(JobAnswer answer);

class JobPages {
 public:
  JobPages(GatewayShared& shared, Loop& loop, AuditTrail& audit) : shared_(shared), loop_(loop), audit_(audit) {}

  Task<PageAnswer> list(PageRequest& asked);
  Task<PageAnswer> show(PageRequest& asked);
  Task<PageAnswer> act(PageRequest& asked);

 private:
  Task<Result<FoundJob>> find(std::string_view id_text);
  boost::json::array actions_of(const StoredJob& job, Time now) const;

  GatewayShared& shared_;
  Loop& loop_;
  AuditTrail& audit_;
};

} // namespace oncekey
