"""Signs URLs with boto3."""

import json
import sys

import boto3

client = boto3.client(
    "s3", region_name="us-east-1", aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key="secret"
)
count = int(sys.argv[1])
length = 0
for number in range(count):
    key = f"table/date=2025-01-01/region=region-1/part-{number:05d}.parquet"
    length += len(
        client.generate_presigned_url("get_object", Params={"Bucket": "bench", "Key": key}, ExpiresIn=900)
    )
print(json.dumps({"urls": count, "bytes": length}), flush=True)
