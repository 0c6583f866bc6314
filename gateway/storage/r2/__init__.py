"""Buckets of R2: temporary credentials of Cloudflare's API. All else is as for S3."""
