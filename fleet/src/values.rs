//! The values of an answer.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use serde_json::Value as Json;

/// What a closure makes of each row.
pub fn rows<'a, Made>(
    batches: &'a [RecordBatch],
    of: impl Fn(&'a RecordBatch, usize) -> Made + Copy + 'a,
) -> impl Iterator<Item = Made> + 'a {
    batches.iter().flat_map(move |batch| (0..batch.num_rows()).map(move |row| of(batch, row)))
}

/// A value as JSON has it: what is neither number nor list is written as text.
pub fn json(batch: &RecordBatch, column: usize, row: usize) -> Json {
    of_array(batch.column(column), row)
}

fn of_array(values: &dyn Array, row: usize) -> Json {
    if !values.is_valid(row) {
        return Json::Null;
    }
    match values.data_type() {
        DataType::Int32 => values.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => values.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt64 => values.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float64 => values.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => values.as_boolean().value(row).into(),
        DataType::List(_) => {
            let list = values.as_list::<i32>().value(row);
            (0..list.len()).map(|at| of_array(&list, at)).collect()
        }
        _ => array_value_to_string(values, row).unwrap_or_default().into(),
    }
}

/// A text; `None` where it is null.
pub fn text(batch: &RecordBatch, column: usize, row: usize) -> Option<String> {
    match json(batch, column, row) {
        Json::Null => None,
        Json::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// A number that is not negative; 0 where it is null.
pub fn number(batch: &RecordBatch, column: usize, row: usize) -> u64 {
    let value = json(batch, column, row);
    value.as_u64().unwrap_or(0)
}

/// A number with a fraction; 0 where it is null.
pub fn float(batch: &RecordBatch, column: usize, row: usize) -> f64 {
    json(batch, column, row).as_f64().unwrap_or(0.0)
}
